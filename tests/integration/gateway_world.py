"""Around the gateway in tests: a real mosquitto, the real gateway process, a context that only talks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Mosquitto:
    """A broker process with persistence, on its own port."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        self.port = free_port()
        directory.mkdir(exist_ok=True)
        self._config = directory / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {directory}/\nautosave_interval 1\nuser root\n{extra}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["mosquitto", "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._listens, "mosquitto")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(10)
            self._process = None

    def forget(self) -> None:
        """Killed, and started again with nothing on its disk."""
        self.stop(signal.SIGKILL)
        for file in self._config.parent.glob("*.db"):
            file.unlink()
        self.start()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


class Plant:
    """The plant's side of the broker: publishes alarms, collects everything else."""

    def __init__(self, port: int) -> None:
        self.received: list[tuple[str, bytes]] = []
        self._subscribed = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "plant", protocol=paho.MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe([("out/#", 1), ("dead", 1)])
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = lambda _c, _u, m: self.received.append((m.topic, bytes(m.payload)))
        self._client.reconnect_delay_set(1, 1)
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        session.SessionExpiryInterval = 3600
        self._client.connect("127.0.0.1", port, clean_start=False, properties=session)
        self._client.loop_start()
        assert self._subscribed.wait(10)

    def publish(self, topic: str, payload: bytes | str | dict[str, Any], retain: bool = False) -> None:
        raw = json.dumps(payload, ensure_ascii=False) if isinstance(payload, dict) else payload
        info = self._client.publish(topic, raw, qos=1, retain=retain)
        info.wait_for_publish(PATIENCE_S)

    def on(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(payload) for name, payload in list(self.received) if name == topic]

    def answers(self, line: str = "1") -> list[dict[str, Any]]:
        return self.on(f"out/{line}/answer")

    def wait_answers(self, count: int, line: str = "1") -> list[dict[str, Any]]:
        wait_for(lambda: len(self.answers(line)) >= count, f"{count} answers")
        return self.answers(line)

    def wait_dead(self, count: int) -> list[dict[str, Any]]:
        wait_for(lambda: len(self.on("dead")) >= count, f"{count} dead letters")
        return self.on("dead")

    def wait_connected(self) -> None:
        wait_for(self._client.is_connected, "the plant's connection")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


CONFIG = """
[paths]
runtime = "{directory}/run"
memory = "{directory}/shm"
data = "{directory}/data"
[models]
target = "smollm2-135m"
[mqtt]
port = {port}
version = "{version}"
[gateway]
dead_letter_topic = "dead"
max_payload_bytes = 4096
[[profiles]]
name = "plain"
language = "en"
system = "You explain plant alarms."
max_tokens = 32
[[routes]]
topic = "plant/+/alarm"
profile = "plain"
answer = "out/{{1}}/answer"
"""


class GatewayProcess:
    """`python -m services.gateway` with its own directories."""

    def __init__(self, directory: Path, port: int, version: str = "5", config: str = CONFIG) -> None:
        self.directory = directory
        self.log_file = directory / "gateway.log"
        self._config = directory / "ringline.toml"
        self._config.write_text(config.format(directory=directory, port=port, version=version))
        data = directory / "data"
        data.mkdir(exist_ok=True)
        for name in ("models", "cache"):
            (ROOT / ".ringline" / name).mkdir(parents=True, exist_ok=True)
            if not (data / name).exists():
                (data / name).symlink_to(ROOT / ".ringline" / name)
        self.process: subprocess.Popen[bytes] | None = None

    def edit(self, old: str, new: str) -> None:
        text = self._config.read_text()
        assert old in text
        self._config.write_text(text.replace(old, new))

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.gateway", "--config", str(self._config)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.process = None
        return code

    def log(self) -> str:
        return self.log_file.read_text()

    def wait_log(self, text: str, count: int = 1) -> None:
        wait_for(lambda: self.log().count(text) >= count, f'"{text}" in the log', self.log)
