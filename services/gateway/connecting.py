"""Around a connection to the broker: credentials, certificates, pauses between attempts."""

from __future__ import annotations

import ssl

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from shared.config.errors import RinglineError
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


def read_password(settings: Mqtt) -> str | None:
    """The content of mqtt.password_file; RinglineError when it cannot be read."""
    if settings.password_file is None:
        return None
    try:
        return settings.password_file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RinglineError(
            f"{settings.password_file}: cannot read mqtt.password_file: {plain(error)}"
        ) from None


def tls_context(settings: Mqtt) -> ssl.SSLContext | None:
    """For a broker with TLS, None without; RinglineError for files that cannot be used."""
    if settings.tls_ca is None and settings.tls_cert is None:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        if settings.tls_cert is not None:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ValueError) as error:  # of OSError ssl.SSLError too; ValueError: a NUL in a path
        names = ", ".join(
            str(path) for path in (settings.tls_ca, settings.tls_cert, settings.tls_key) if path
        )
        raise RinglineError(f"cannot use the TLS files {names}: {plain(error)}") from None
    return context


def plain(error: BaseException) -> str:
    """An error in as few words as there are."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
