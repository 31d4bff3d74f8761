"""Deliveries on their way from the broker into the journal: written, committed, then acknowledged.

alarm, log line ──▶ held (HELD at most) ──journal commit──▶ acknowledged
               │ no room, in the journal or on its disk: they stay, unacknowledged, and the broker
               │ sends no more than its receive maximum; the gateway answers what it has meanwhile
               └ held is full (MQTT 3.1.1 knows no such maximum): not taken, not acknowledged; the
                 connection is made anew once there is room, and the broker sends them again
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable

import structlog

from services.gateway.events import Delivery
from services.gateway.intake import Intake
from services.gateway.journal import Journal, JournalFull
from services.gateway.mqtt import MqttLink

HELD = 512  # a burst of log lines is many; mosquitto may send more than it was told to
_FULL_RETRY_S = 0.2
_FAILED_RETRY_S = 1.0

_log = structlog.get_logger()


class Inbox:
    """`hold` what has arrived, `take` as often as possible; nothing here stops what goes out."""

    def __init__(
        self, journal: Journal, intake: Intake, link: MqttLink, make_room: Callable[[], None]
    ) -> None:
        """`make_room` gives up log lines beyond their bound, in the transaction that took others in."""
        self._journal = journal
        self._intake = intake
        self._link = link
        self._make_room = make_room
        self._held: deque[Delivery] = deque()
        self._missed = False  # held was full: the broker must send again
        self._dropped = 0  # alarms with QoS 0 for which there was no place
        self._retry_at = 0.0
        self._trouble = ""
        self._batch = HELD  # one after a failure, then more and more again

    def hold(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if len(self._held) < HELD:
                self._held.append(delivery)
            elif delivery.qos:
                self._missed = True
            else:
                self._dropped += 1

    def disconnected(self, connection: int) -> None:
        """What is not acknowledged the broker sends again on the next connection."""
        self._missed = False
        self._held = deque(item for item in self._held if not item.qos or item.connection != connection)

    def take(self) -> None:
        """Journal, commit, then acknowledge. What cannot be written now is held, with all behind it."""
        if time.monotonic() < self._retry_at:
            return
        if self._held:
            self._take_held()
        if self._missed and not self._held:
            self._missed = False
            self._link.drop_connection()

    def _take_held(self) -> None:
        taken: list[int | None] = []
        count = min(self._batch, len(self._held))
        try:
            self._journal.check_disk(sum(len(self._held[index].payload) for index in range(count)))
            with self._journal.batch():
                full = self._write_held(count, taken)
                self._make_room()
        except JournalFull as error:
            self._pause(str(error), _FULL_RETRY_S)
            return
        except sqlite3.Error as error:
            self._journal.relieve()
            self._pause(f"the journal cannot be written ({error})", _FAILED_RETRY_S)
            return
        self._acknowledge(taken)
        if full:
            self._pause(full, _FULL_RETRY_S)
        else:
            self._go_on()

    def _write_held(self, count: int, taken: list[int | None]) -> str:
        """Journal what there is room for. Returns why the rest must wait."""
        try:
            for index in range(count):
                taken.append(self._intake.take(self._held[index]))
        except JournalFull as full:
            return str(full)
        return ""

    def _acknowledge(self, taken: list[int | None]) -> None:
        told = []
        for seq in taken:
            if self._link.acknowledge(self._held.popleft()) and seq is not None:
                told.append(seq)
        try:
            self._journal.acknowledged(told)
        except sqlite3.Error as error:
            self._pause(f"the journal cannot be written ({error})", _FAILED_RETRY_S)

    def _pause(self, trouble: str, wait_s: float) -> None:
        """Each trouble is said once, until everything that had to wait for it is taken."""
        self._retry_at = time.monotonic() + wait_s
        self._batch = 1
        if not self._trouble:
            _log.error(f"{trouble}; the broker keeps the next alarms, what is here is answered meanwhile")
        self._trouble = trouble

    def _go_on(self) -> None:
        self._batch = min(2 * self._batch, HELD)
        if self._trouble and not self._held and not self._missed:
            self._trouble = ""
            _log.info("the journal takes alarms again", lost_qos_0=self._dropped)
            self._dropped = 0
