"""What the link to the broker tells the gateway's loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message from the broker. `topic` is bytes because it may not be UTF-8; `size` is before cutting."""

    topic: bytes
    payload: bytes
    size: int
    qos: int
    retained: bool
    redelivered: bool
    packet: int
    connection: int


@dataclass(frozen=True, slots=True)
class Connected:
    connection: int
    max_packet: int | None  # the broker's limit, MQTT 5 only


@dataclass(frozen=True, slots=True)
class Disconnected:
    connection: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker's answer to a message of ours; `refused` is its reason when it did not take it."""

    ticket: int
    refused: str | None


@dataclass(frozen=True, slots=True)
class Wake:
    """Something is in `MqttLink.confirmed`."""


Event = Delivery | Connected | Disconnected | Wake
