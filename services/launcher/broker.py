"""The embedded MQTT broker: for demonstrations, loopback only, MQTT 3.1.1, nothing kept over a restart.

`python -m services.launcher.broker --config FILE`; the launcher starts it when broker.enabled is set.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from typing import Any

import structlog

from shared.config.errors import RinglineError
from shared.config.service import run_service
from shared.config.settings import Broker, Settings

_TURN_S = 0.2
_MAX_CONNECTIONS = 64

_log = structlog.get_logger()


def main(settings: Settings, stop: threading.Event) -> int:
    """Serve until `stop` is set. RinglineError: not loopback, port taken, MQTT 5, not installed."""
    check_broker(settings)
    _check_port(settings.broker)
    logging.getLogger("amqtt").setLevel(logging.ERROR)
    logging.getLogger("transitions").setLevel(logging.ERROR)
    asyncio.run(_serve(settings.broker, stop))
    return 0


def check_broker(settings: Settings) -> None:
    """RinglineError when these settings cannot work with the embedded broker."""
    broker = settings.broker
    if not _is_loopback(broker.host):
        raise RinglineError(
            f'broker.host = "{broker.host}": it has no passwords and serves only loopback; '
            "use 127.0.0.1, or run a real broker and set broker.enabled = false"
        )
    if settings.mqtt.version != "3.1.1":
        raise RinglineError('the embedded broker speaks MQTT 3.1.1: set mqtt.version = "3.1.1"')


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_port(broker: Broker) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((broker.host, broker.port))
        except OSError as error:
            raise RinglineError(
                f"the embedded broker cannot listen on {broker.host}:{broker.port} ({error.strerror}): stop "
                "what uses the port, or set broker.port and mqtt.port to another one"
            ) from None


async def _serve(broker: Broker, stop: threading.Event) -> None:
    server = _make_server(broker)
    await server.start()
    _log.info("embedded broker listens", host=broker.host, port=broker.port)
    while not stop.is_set():
        await asyncio.sleep(_TURN_S)
    await server.shutdown()


def _make_server(broker: Broker) -> Any:
    try:
        from amqtt.broker import Broker as Server  # a demonstration's dependency: the services run without it
    except ImportError:
        raise RinglineError(
            "broker.enabled needs the package amqtt: pip install 'ringline[demo]', or run your own broker"
        ) from None
    listener = {"type": "tcp", "bind": f"{broker.host}:{broker.port}", "max_connections": _MAX_CONNECTIONS}
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    return Server({"listeners": {"default": listener}, "plugins": plugins})


if __name__ == "__main__":
    run_service("broker", main)
