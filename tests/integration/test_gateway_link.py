"""The link to the broker by itself: what happens in callbacks, and to a loop that is slow."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode
from structlog.testing import capture_logs

from services.gateway import mqtt
from services.gateway.events import Connected, Delivery, Disconnected
from services.gateway.mqtt import MqttLink
from shared.config.settings import Mqtt
from tests.integration.gateway_world import Mosquitto, Plant
from tests.integration.waiting import wait_for


class FailsOnce(MqttLink):
    """Its first message raises inside paho's callback."""

    failures = 0

    def _on_message(self, connection: int, message: paho.MQTTMessage) -> None:
        if self.failures == 0:
            self.failures += 1
            raise ZeroDivisionError("a fault in a callback")
        super()._on_message(connection, message)


@pytest.fixture
def plant(mosquitto: Mosquitto) -> Iterator[Plant]:
    plant = Plant(mosquitto.port)
    yield plant
    plant.close()


def settings(mosquitto: Mosquitto) -> Mqtt:
    return Mqtt(port=mosquitto.port, keepalive_s=5)


def next_of(events: queue.Queue[Any], kind: type) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        event = events.get(timeout=30)
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


def test_an_exception_in_a_callback_costs_a_connection_not_the_alarm(
    mosquitto: Mosquitto, plant: Plant
) -> None:
    """The link connects anew and the broker delivers what was not acknowledged."""
    events: queue.Queue[Any] = queue.Queue(16)
    link = FailsOnce(settings(mosquitto), ["plant/+/alarm"], [], 1000, events)
    link.start()
    try:
        next_of(events, Connected)
        plant.publish("plant/1/alarm", "pump stopped")
        delivery = next_of(events, Delivery)
        assert delivery.payload == b"pump stopped"
        assert delivery.redelivered
        assert link.failures == 1
    finally:
        link.close()


def test_a_slow_loop_does_not_cost_the_connection(mosquitto: Mosquitto, plant: Plant) -> None:
    """Nobody reads events for more than twice the keepalive; the network thread goes on by itself."""
    events: queue.Queue[Any] = queue.Queue(64)
    link = MqttLink(settings(mosquitto), ["plant/+/alarm"], [], 1000, events)
    link.start()
    try:
        next_of(events, Connected)
        for number in range(10):
            plant.publish("plant/1/alarm", f"alarm {number}")
        time.sleep(12)
        arrived = [events.get_nowait() for _ in range(events.qsize())]
        assert [event.payload for event in arrived] == [f"alarm {n}".encode() for n in range(10)]
        assert not any(isinstance(event, Disconnected) for event in arrived)
    finally:
        link.close()


def test_a_full_queue_ends_the_connection_and_the_broker_delivers_again(
    mosquitto: Mosquitto, plant: Plant
) -> None:
    """Nothing is dropped silently, nothing grows."""
    events: queue.Queue[Any] = queue.Queue(4)
    link = MqttLink(settings(mosquitto), ["plant/+/alarm"], [], 1000, events)
    link.start()
    try:
        next_of(events, Connected)
        for number in range(8):
            plant.publish("plant/1/alarm", f"alarm {number}")
        time.sleep(7)
        found: set[bytes] = set()
        deadline = time.monotonic() + 60
        while len(found) < 8 and time.monotonic() < deadline:
            delivery = next_of(events, Delivery)
            found.add(delivery.payload)
            link.acknowledge(delivery)
        assert found == {f"alarm {n}".encode() for n in range(8)}
    finally:
        link.close()


def test_many_publications_are_each_confirmed_once(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """Also those whose PUBACK is faster than the caller."""
    events: queue.Queue[Any] = queue.Queue(16)
    link = MqttLink(settings(mosquitto), ["plant/+/alarm"], [], 1000, events)
    link.start()
    try:
        connection = next_of(events, Connected).connection
        for ticket in range(300):
            assert link.publish(connection, ticket, "out/x", b"payload")
            link.stream("out/x/stream", b"delta")
        tickets = [link.confirmed.get(timeout=10).ticket for _ in range(300)]
        assert sorted(tickets) == list(range(300))
        assert not link.publish(connection + 1, 1, "out/x", b"for another connection")
    finally:
        link.close()


def test_a_broker_that_accepts_and_says_nothing_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else listens on that port, or a broker that wants TLS."""
    monkeypatch.setattr(mqtt, "_ACCEPT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent, capture_logs() as said:
        link = MqttLink(Mqtt(port=silent.getsockname()[1]), ["plant/+/alarm"], [], 1000, queue.Queue(16))
        link.start()
        try:
            wait_for(lambda: link._connection >= 3, "three attempts")
        finally:
            link.close()
    assert [item["event"] for item in said if "does not answer as an MQTT broker" in item["event"]] != []
    assert len(said) == 1


def test_a_broker_that_accepts_while_the_link_is_closed_is_left_in_peace(mosquitto: Mosquitto) -> None:
    """Its CONNACK finds no client any more."""
    link = MqttLink(settings(mosquitto), ["plant/+/alarm"], [], 1000, queue.Queue(16))
    link._on_connect(ReasonCode(PacketTypes.CONNACK), None)
    link.close()
