"""Around a connection to the broker: the client, sizes, topics, pauses between attempts."""

from __future__ import annotations

import ssl

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from shared.config.settings import Mqtt

RECEIVE_MAXIMUM = 64  # alarms the broker may have under way to us, unacknowledged
MAX_PACKET_BYTES = 32 << 20  # what larger packets hold the broker throws away, as MQTT 5 says
CONNECT_S = 5.0
_BACKOFF_S = (0.5, 30.0)
_HEADER_BYTES = 32  # of a PUBLISH packet besides topic and payload


def backoff(failures: int, chance: float) -> float:
    """Seconds before the next attempt: doubling, and spread by `chance` in [0, 1): no herd of gateways."""
    shortest, longest = _BACKOFF_S
    return min(longest, shortest * float(1 << min(failures, 10))) * (0.5 + 0.5 * chance)


def new_client(settings: Mqtt, password: str | None, tls: ssl.SSLContext | None) -> paho.Client:
    """A client on the broker's persistent session, for one connection; it does not reconnect by itself."""
    five = settings.version == "5"
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=settings.client_id,
        clean_session=None if five else False,
        protocol=paho.MQTTv5 if five else paho.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = CONNECT_S
    client.max_inflight_messages_set(RECEIVE_MAXIMUM)
    if settings.username is not None:
        client.username_pw_set(settings.username, password)
    if tls is not None:
        client.tls_set_context(tls)
    return client


def connect(client: paho.Client, settings: Mqtt) -> None:
    """Begin a connection on the broker's persistent session. OSError or ValueError when there is no broker.

    MQTT 5 has limits for what the broker sends, in unacknowledged messages and in bytes; 3.1.1 has none.
    """
    if settings.version == "5":
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = settings.session_expiry_s
        properties.ReceiveMaximum = RECEIVE_MAXIMUM
        properties.MaximumPacketSize = MAX_PACKET_BYTES
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
