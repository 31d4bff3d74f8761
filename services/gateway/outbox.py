"""Publishes what the journal holds until the broker has acknowledged it."""

from __future__ import annotations

import contextlib
import json
import queue
import time

import structlog

from services.gateway.answers import error_answer
from services.gateway.connecting import packet_bytes
from services.gateway.journal import Journal, Outgoing
from services.gateway.mqtt import MqttLink

IN_FLIGHT = 16  # below the 20 that mosquitto takes at once
_REFUSED_WAIT_S = 30.0
_STRIKES = 5  # connections that ended while the same message was under way

_log = structlog.get_logger()


class Outbox:
    """`pump` after anything that may let it go on; it never waits."""

    def __init__(self, journal: Journal, link: MqttLink) -> None:
        self._journal = journal
        self._link = link
        self._connection: int | None = None
        self._max_packet: int | None = None
        self._flying: set[int] = set()
        self._refused: dict[int, float] = {}  # not before (monotonic)
        self._strikes: dict[int, int] = {}

    def connected(self, connection: int, max_packet: int | None) -> None:
        self._connection, self._max_packet = connection, max_packet
        self._flying.clear()

    def disconnected(self, connection: int) -> None:
        if connection == self._connection:
            self._connection = None
            self._count_strikes()
            self._flying.clear()

    def pump(self) -> None:
        """Note what was acknowledged, publish what there is room for."""
        self.settle()
        if self._connection is None:
            return
        now = time.monotonic()
        self._refused = {seq: at for seq, at in self._refused.items() if at > now}
        room = IN_FLIGHT - len(self._flying)
        if room > 0 and len(self._refused) < IN_FLIGHT:
            for message in self._journal.outgoing(room, self._flying | self._refused.keys()):
                self._publish(message)

    def _publish(self, message: Outgoing) -> None:
        assert self._connection is not None
        payload = message.payload
        if self._max_packet is not None and packet_bytes(message.topic, payload) > self._max_packet:
            reason = (
                f"the answer of {len(payload)} bytes is larger than the broker takes ({self._max_packet})"
            )
            payload = self._replace(message.seq, payload, reason)
        if self._link.publish(self._connection, message.seq, message.topic, payload):
            self._flying.add(message.seq)

    @property
    def flying(self) -> bool:
        """Whether the broker still has to acknowledge something."""
        return bool(self._flying)

    def settle(self) -> None:
        """Note what the broker has acknowledged."""
        if self._link.confirmed.empty():
            return
        with self._journal.batch(), contextlib.suppress(queue.Empty):
            while True:
                confirmed = self._link.confirmed.get_nowait()
                self._note(confirmed.ticket, confirmed.refused)

    def _note(self, seq: int, refused: str | None) -> None:
        self._flying.discard(seq)
        self._strikes.pop(seq, None)
        if refused is None:
            self._journal.published(seq)
            return
        _log.error(f"the broker refuses an answer ({refused}), trying again: check its access rules", seq=seq)
        self._refused[seq] = time.monotonic() + _REFUSED_WAIT_S

    def _count_strikes(self) -> None:
        """A message on which the broker hangs up every time becomes a short one."""
        self._strikes = {seq: self._strikes.get(seq, 0) + 1 for seq in self._flying}
        for message in self._journal.outgoing(len(self._flying)):
            if self._strikes.get(message.seq, 0) == _STRIKES:
                reason = f"the broker hung up {_STRIKES} times on the answer of {len(message.payload)} bytes"
                self._replace(message.seq, message.payload, reason)

    def _replace(self, seq: int, payload: bytes, reason: str) -> bytes:
        _log.error(f"{reason}; publishing an error instead: raise the broker's packet limit", seq=seq)
        short = error_answer(str(json.loads(payload).get("id", "")), None, reason)
        self._journal.replace_outgoing(seq, short)
        return short
