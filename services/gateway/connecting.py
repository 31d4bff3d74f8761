"""Around a connection to the broker: sizes, topics, pauses between attempts."""

from __future__ import annotations

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from shared.config.settings import Mqtt

_BACKOFF_S = (0.5, 30.0)
_HEADER_BYTES = 32  # of a PUBLISH packet besides topic and payload


def backoff(failures: int, chance: float) -> float:
    """Seconds before the next attempt: doubling, and spread by `chance` in [0, 1): no herd of gateways."""
    shortest, longest = _BACKOFF_S
    return min(longest, shortest * float(1 << min(failures, 10))) * (0.5 + 0.5 * chance)


def connect(client: paho.Client, settings: Mqtt, receive_maximum: int, max_packet: int) -> None:
    """Begin a connection on the broker's persistent session. OSError or ValueError when there is no broker.

    MQTT 5 has limits for what the broker sends, in unacknowledged messages and in bytes; 3.1.1 has none.
    """
    if settings.version == "5":
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = settings.session_expiry_s
        properties.ReceiveMaximum = receive_maximum
        properties.MaximumPacketSize = max_packet
        client.connect(
            settings.host, settings.port, settings.keepalive_s, clean_start=False, properties=properties
        )
    else:
        client.connect(settings.host, settings.port, settings.keepalive_s)


def packet_bytes(topic: str, payload: bytes) -> int:
    """Size of a PUBLISH packet, or a little more."""
    return len(topic.encode()) + len(payload) + _HEADER_BYTES


def topic_bytes(message: paho.MQTTMessage) -> bytes:
    """A message's topic as it came, also when it is not UTF-8."""
    try:
        return message.topic.encode()
    except UnicodeDecodeError as error:
        return bytes(error.object)
