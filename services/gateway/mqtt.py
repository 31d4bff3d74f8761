"""The link to the broker: one paho client for each connection, in a thread that keeps one alive.

A client that is thrown away with its connection leaves nothing behind: what the broker has not acknowledged
is in the journal and is published again from there, and the session with unacknowledged alarms is the
broker's. paho's own reconnection would keep both in memory, and has no jitter.

    on_message ──▶ `events` (bounded; a full queue ends the connection, the broker delivers again)
    PUBACKs    ──▶ `confirmed` (at most as many as were published)
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
import structlog
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from services.gateway.connecting import CONNECT_S, backoff, connect, new_client, packet_bytes, topic_bytes
from services.gateway.events import Confirmed, Connected, Delivery, Disconnected, Event, Wake
from services.gateway.tickets import Tickets
from shared.config.credentials import plain, read_password, tls_context
from shared.config.settings import Mqtt

STREAM_BACKLOG = 256  # stream messages that may wait for a slow network
_ACCEPT_S = 15.0  # until the subscriptions are confirmed
_QUEUE_WAIT_S = 5.0
_STABLE_S = 5.0  # a connection that lasted so long was a good one
_TAKEN_OVER = 0x8E  # MQTT 5, 2.4

_log = structlog.get_logger()


class MqttLink:
    """`start`, then `publish`, `stream` and `acknowledge` from one thread; events arrive in `events`."""

    def __init__(
        self, settings: Mqtt, filters: list[str], stale: list[str], max_payload: int, events: queue.Queue[Any]
    ) -> None:
        """`stale`: filters of an earlier configuration that the broker's session still has."""
        self._settings = settings
        self._filters = filters
        self._stale = stale
        self._max_payload = max_payload
        self._events = events
        self._password = read_password(settings)
        self._tls = tls_context(settings)
        self._stop = threading.Event()
        self._over = threading.Event()  # this connection has ended
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)
        self._client: paho.Client | None = None
        self._connection = 0
        self._up = False
        self._quiet = False  # this outage was reported already
        self._tickets = Tickets()
        self._streamed: deque[paho.MQTTMessageInfo] = deque()
        self._max_packet: int | None = None  # the broker's limit, which MQTT 5 tells
        self.stream_dropped = 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Leave the broker properly; the session with its subscriptions stays."""
        self._stop.set()
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(CONNECT_S + 5)

    @property
    def confirmed(self) -> queue.SimpleQueue[Confirmed]:
        """Tickets of what the broker has acknowledged or refused."""
        return self._tickets.confirmed

    def publish(self, connection: int, ticket: int, topic: str, payload: bytes) -> bool:
        """QoS 1. `ticket` comes back in `confirmed` unless the connection ends. False: not connected."""
        client = self._client
        if client is None or not self._up or connection != self._connection:
            return False
        return self._guarded(
            lambda: self._tickets.publish(ticket, lambda: client.publish(topic, payload, qos=1).mid)
        )

    def stream(self, topic: str, payload: bytes) -> None:
        """QoS 0: dropped when there is no connection, it is too slow, or the broker takes no such size."""
        client = self._client
        while self._streamed and self._streamed[0].is_published():
            self._streamed.popleft()
        too_large = self._max_packet is not None and packet_bytes(topic, payload) > self._max_packet
        if client is None or not self._up or too_large or len(self._streamed) >= STREAM_BACKLOG:
            self.stream_dropped += 1
            return
        self._guarded(lambda: self._streamed.append(client.publish(topic, payload, qos=0)))

    def acknowledge(self, delivery: Delivery) -> bool:
        """Tell the broker that the message is ours now. Only on the connection it came on: False if that is
        over and the broker will send it again."""
        client = self._client
        if not delivery.qos or client is None or delivery.connection != self._connection:
            return False
        return self._guarded(lambda: client.ack(delivery.packet, delivery.qos))

    def drop_connection(self) -> None:
        """Connect anew: the broker then delivers again what was not acknowledged."""
        self._over.set()

    def _guarded(self, action: Callable[[], object]) -> bool:
        try:
            action()
        except (ValueError, OSError, RuntimeError) as error:
            _log.warning("the broker's client failed, connecting anew", error=str(error))
            self._over.set()
            return False
        return True

    # --- the thread that keeps a connection ---

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._connection += 1
            self._quiet = failures > 0
            began = time.monotonic()
            good = self._live(self._connection) and time.monotonic() - began >= _STABLE_S
            failures = 0 if good else failures + 1
            self._stop.wait(backoff(failures, random.random()))

    def _live(self, connection: int) -> bool:
        """One connection from its beginning to its end. Whether the broker accepted it."""
        self._over.clear()
        if self._stop.is_set():
            return False
        client = self._make_client(connection)
        try:
            connect(client, self._settings)
        except (OSError, ValueError) as error:
            self._complain(
                f"no MQTT broker at {self._where} ({plain(error)}); trying again until there is one: "
                "start it or set mqtt.host and mqtt.port"
            )
            return False
        self._tickets.clear()
        self._streamed.clear()
        self._client = client
        client.loop_start()
        if self._over.wait(_ACCEPT_S) or self._up:
            self._over.wait()
        if not self._up and not self._stop.is_set():
            self._complain(
                f"{self._where} does not answer as an MQTT broker; trying again: check mqtt.port, and "
                "mqtt.tls_ca, which must be set if the broker wants TLS and only then"
            )
        return self._leave(client, connection)

    @property
    def _where(self) -> str:
        return f"{self._settings.host}:{self._settings.port}"

    def _complain(self, text: str) -> None:
        """Each outage is reported once."""
        if not self._quiet:
            _log.warning(text)
        self._quiet = True

    def _leave(self, client: paho.Client, connection: int) -> bool:
        was_up, self._up = self._up, False
        self._client = None
        with contextlib.suppress(ValueError, OSError):
            client.disconnect()
        client.loop_stop()
        if was_up:
            self._put(Disconnected(connection))
        return was_up

    def _make_client(self, connection: int) -> paho.Client:
        client = new_client(self._settings, self._password, self._tls)
        client.on_connect = self._careful(lambda _c, _u, _f, code, extra: self._on_connect(code, extra))
        client.on_disconnect = self._careful(lambda _c, _u, _f, code, _p: self._on_disconnect(code))
        client.on_message = self._careful(lambda _c, _u, message: self._on_message(connection, message))
        client.on_publish = self._careful(lambda _c, _u, mid, code, _p: self._confirm(mid, code))
        client.on_subscribe = self._careful(
            lambda _c, _u, _m, codes, _p: self._on_subscribe(connection, codes)
        )
        return client

    def _careful(self, callback: Callable[..., object]) -> Callable[..., None]:
        """An exception would end paho's thread: it is logged, and the connection is made anew."""

        def guarded(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except Exception:
                _log.exception("an MQTT callback failed, connecting anew")
                self._over.set()

        return guarded

    # --- callbacks, in paho's thread ---

    def _on_connect(self, code: ReasonCode, properties: Properties | None) -> None:
        if code.is_failure:
            self._complain(
                f"the MQTT broker at {self._where} refuses us ({code}): "
                "check mqtt.username, mqtt.password_file and mqtt.client_id; trying again"
            )
            self._over.set()
            return
        client = self._client
        if client is None:
            return  # it is being left
        self._max_packet = getattr(properties, "MaximumPacketSize", None)
        if self._stale:
            client.unsubscribe(self._stale)
        if self._settings.version == "5":  # retained alarms only with the session's first subscription
            options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
            client.subscribe([(item, options) for item in self._filters])
        else:
            client.subscribe([(item, 1) for item in self._filters])

    def _on_disconnect(self, code: ReasonCode) -> None:
        if self._up and code.is_failure:
            hint = ": another client uses mqtt.client_id" if code.value == _TAKEN_OVER else ""
            _log.warning(f"the connection to the broker is lost ({code}){hint}; connecting anew")
        self._over.set()

    def _on_subscribe(self, connection: int, codes: list[ReasonCode]) -> None:
        """Only now is the connection of use: an alarm before the first subscription reaches nobody."""
        for topic, code in zip(self._filters, codes, strict=False):
            if code.is_failure:
                _log.error(
                    f'the broker refuses the subscription to "{topic}" ({code}): check its access rules'
                )
        self._up = True
        _log.info("connected to the broker", host=self._settings.host, port=self._settings.port)
        self._put(Connected(connection, self._max_packet))

    def _on_message(self, connection: int, message: paho.MQTTMessage) -> None:
        delivery = Delivery(
            topic=topic_bytes(message),
            payload=bytes(message.payload[: self._max_payload + 1]),
            size=len(message.payload),
            qos=message.qos,
            retained=message.retain,
            redelivered=message.dup,
            packet=message.mid,
            connection=connection,
        )
        if not self._put(delivery):
            _log.error("the gateway does not keep up with its alarms, connecting anew", qos=message.qos)
            self._over.set()

    def _confirm(self, mid: int, code: ReasonCode) -> None:
        self._tickets.settle(mid, str(code) if code.is_failure else None)
        with contextlib.suppress(queue.Full):  # a full queue needs no waking
            self._events.put_nowait(Wake())

    def _put(self, event: Event) -> bool:
        """False when the queue stays full for so long that the broker should rather send it again."""
        try:
            self._events.put(event, timeout=_QUEUE_WAIT_S)
        except queue.Full:
            return False
        return True
