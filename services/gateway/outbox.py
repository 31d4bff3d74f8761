"""Publishes what the journal holds until the broker has acknowledged it. No message holds up another.

What the broker refuses, does not take or hangs up on goes down this ladder, and each step is logged:

    answer ──▶ error answer ──▶ dead letter ──▶ dead letter without payload ──▶ closed, kept in the journal
       └──────── refused ───────────▲
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from services.gateway.answers import dead_letter, shorter_answer, shorter_letter
from services.gateway.connecting import packet_bytes
from services.gateway.journal import Journal, Outgoing, State
from services.gateway.mqtt import MqttLink
from services.gateway.refusals import Refusals
from services.gateway.suspects import CALM_S, STRIKES, Suspects

IN_FLIGHT = 16  # below the 20 that mosquitto takes at once

_log = structlog.get_logger()


class Outbox:
    """`pump` after anything that may let it go on; it never waits."""

    def __init__(
        self,
        journal: Journal,
        link: MqttLink,
        dead_letter_topic: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        self._link = link
        self._dead_letter_topic = dead_letter_topic
        self._clock = clock
        self._connection: int | None = None
        self._max_packet: int | None = None
        self._since = 0.0  # the connection's beginning
        self._published = 0.0  # when the last message left
        self._flying: dict[int, Outgoing] = {}
        self._refusals = Refusals()
        self._suspects = Suspects()

    def connected(self, connection: int, max_packet: int | None) -> None:
        self._connection, self._max_packet = connection, max_packet
        self._since = self._clock()
        self._flying.clear()

    def disconnected(self, connection: int) -> None:
        self.settle()
        if connection == self._connection:
            self._connection = None
            flying, self._flying = self._flying, {}
            for message in flying.values():
                if self._suspects.strike(message):
                    self._step_down(message, f"the broker hung up {STRIKES} times on it")

    @property
    def flying(self) -> bool:
        """Whether the broker still has to acknowledge something."""
        return bool(self._flying)

    def pump(self) -> None:
        """Note what was acknowledged, publish what there is room for."""
        self.settle()
        if self._connection is not None:
            for message in self._choose():
                self._publish(message)

    def _choose(self) -> list[Outgoing]:
        now = self._clock()
        waiting = self._refusals.waiting(now)
        suspect = self._suspects.next(now - self._since, waiting | self._flying.keys())
        if self._flying and now - self._published < CALM_S:
            if suspect is not None or any(seq in self._suspects for seq in self._flying):
                return []  # a suspect flies alone, unless the broker says nothing at all
        elif suspect is not None:
            return [suspect]
        room = IN_FLIGHT - len(self._flying)
        return self._journal.outgoing(room, waiting | self._flying.keys() | self._suspects.seqs)

    def _publish(self, message: Outgoing) -> None:
        fitting = self._fitting(message)
        if fitting is not None and self._connection is not None:
            self._flying[fitting.seq] = fitting  # also when it fails: then the connection ends, a strike
            self._published = self._clock()
            self._link.publish(self._connection, fitting.seq, fitting.topic, fitting.payload)

    def _fitting(self, message: Outgoing | None) -> Outgoing | None:
        """The message, or as much of it as the broker takes."""
        most = self._max_packet
        while message is not None and most is not None:
            if packet_bytes(message.topic, message.payload) <= most:
                break
            size = len(message.payload)
            message = self._step_down(message, f"its {size} bytes are larger than the broker takes ({most})")
        return message

    def settle(self) -> None:
        """Note what the broker has acknowledged."""
        if self._link.confirmed.empty():
            return
        with self._journal.batch(), contextlib.suppress(queue.Empty):
            while True:
                confirmed = self._link.confirmed.get_nowait()
                self._note(confirmed.ticket, confirmed.refused)

    def _note(self, seq: int, refused: str | None) -> None:
        message = self._flying.pop(seq, None)
        self._suspects.settled(seq)
        if refused is None:
            self._refusals.settled(seq)
            self._journal.published(seq)
        elif message is not None:
            self._refused(message, refused)

    def _refused(self, message: Outgoing, reason: str) -> None:
        known = self._refusals.known(message.topic)
        if not self._refusals.refused(message.seq, message.topic, self._clock()):
            said = f"the broker refuses it ({reason}): check its access rules"
            self._go_to(message, None if message.outcome is State.DEAD else self._letter(message, said), said)
        elif not known:
            _log.warning(f'the broker refuses an answer on "{message.topic}" ({reason}), trying again')

    def _step_down(self, message: Outgoing, reason: str) -> Outgoing | None:
        """Its next form on the ladder, None when there is none."""
        lower: Outgoing | None
        match message.outcome:
            case State.ANSWERED:
                payload = shorter_answer(message.payload, f"the answer could not be published: {reason}")
                lower = replace(message, payload=payload, outcome=State.FAILED)
            case State.FAILED:
                lower = self._letter(message, reason)
            case _:
                short = shorter_letter(message.payload)
                lower = None if short is None else replace(message, payload=short)
        return self._go_to(message, lower, reason)

    def _letter(self, message: Outgoing, reason: str) -> Outgoing:
        topic, payload = message.topic.encode(), message.payload
        letter = dead_letter(topic, payload, len(payload), f"an answer that cannot be published: {reason}")
        return Outgoing(message.seq, self._dead_letter_topic, letter, State.DEAD)

    def _go_to(self, message: Outgoing, lower: Outgoing | None, reason: str) -> Outgoing | None:
        if lower is None:
            _log.error(
                f'a dead letter cannot be published on "{message.topic}": {reason}; it stays in the journal',
                seq=message.seq,
            )
            self._suspects.settled(message.seq)
            self._journal.give_up(message.seq)
            return None
        now = "a dead letter" if lower.outcome is State.DEAD else "an error"
        _log.error(
            f'an answer cannot be published on "{message.topic}": {reason}; it becomes {now}', seq=message.seq
        )
        self._suspects.changed(lower)
        self._journal.replace_outgoing(lower)
        return lower
