"""The gateway's loop: one thread owns the journal and every decision; the others only carry events to it.

paho's thread ── Delivery, Connected, Disconnected ──▶┐
                                                      ├─▶ events ─▶ loop ─▶ journal, bus, broker
bus pump ─────── Joined, Lost, messages ─────────────▶┘
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
import time
from collections import deque

import structlog

from services.gateway.appends import Appends
from services.gateway.events import Connected, Delivery, Disconnected, Wake
from services.gateway.intake import Intake, reroute
from services.gateway.journal import Journal, JournalFull
from services.gateway.mqtt import MqttLink
from services.gateway.outbox import Outbox
from services.gateway.prompt import Prompter
from services.gateway.pump import BusPump
from services.gateway.requests import Requests
from services.gateway.routes import RouteTable
from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import Joined, Lost
from shared.bus.messages import Hello, Message, StreamAppended, StreamRefused
from shared.config.load import config_hash
from shared.config.settings import Settings
from shared.model.open import open_model

EVENTS = 256
_HELD = 2 * EVENTS  # deliveries; a broker may send more than it was told to, mosquitto does
_TURN_S = 0.1
_HELD_RETRY_S = 1.0
_SETTLE_S = 1.0

_log = structlog.get_logger()
Event = Delivery | Connected | Disconnected | Wake | Joined | Lost | Message


def main(settings: Settings, stop: threading.Event) -> int:
    """Run until `stop` is set. RinglineError for what has to be changed before it can run."""
    incarnation = time.monotonic_ns()
    routes = RouteTable(settings)
    model = open_model(settings.models.target, settings.paths)
    prompter = Prompter(model)
    hello = Hello(
        role="gateway",
        incarnation=incarnation,
        pid=os.getpid(),
        config_hash=config_hash(settings),
        vocabulary_hash=model.info.vocabulary_hash,
    )
    journal = Journal(settings.paths.data / "journal.db", settings.gateway.journal_max_alarms)
    reroute(journal, routes, settings.gateway.dead_letter_topic)
    gateway = Gateway(settings, routes, journal, prompter, BusClient(Endpoints.of(settings.paths), hello))
    try:
        gateway.run(stop)
    finally:
        gateway.close()
    return 0


class Gateway:
    def __init__(
        self, settings: Settings, routes: RouteTable, journal: Journal, prompter: Prompter, bus: BusClient
    ) -> None:
        self._events: queue.Queue[Event] = queue.Queue(EVENTS)
        self._journal = journal
        self._filters = routes.filters
        stale = sorted(journal.subscriptions() - set(self._filters))
        self._link = MqttLink(
            settings.mqtt, routes.filters, stale, settings.gateway.max_payload_bytes, self._events
        )
        self._pump = BusPump(bus, self._events)
        self._intake = Intake(settings, routes, journal)
        self._outbox = Outbox(journal, self._link)
        self._requests = Requests(settings, journal, prompter, bus.send, self._link.stream)
        self._appends = Appends(settings, journal, prompter, bus.send, routes.leads_to)
        self._held: deque[Delivery] = deque(maxlen=_HELD)  # could not be journalled
        self._missed = False  # held was full: the broker must send again
        self._retry_at = 0.0
        self._trouble = ""

    def run(self, stop: threading.Event) -> None:
        self._pump.start()
        self._link.start()
        while not stop.is_set():
            deliveries = self._handle(self._drain())
            self._take(deliveries)
            self._advance()
        self._settle()

    def _settle(self) -> None:
        """Hear the broker out about what was published: it is not to be published again at the next start."""
        deadline = time.monotonic() + _SETTLE_S
        while self._outbox.flying and time.monotonic() < deadline:
            self._handle(self._drain())
            with contextlib.suppress(sqlite3.Error):
                self._outbox.settle()

    def close(self) -> None:
        self._link.close()
        self._pump.close()
        self._journal.close()

    def _drain(self) -> list[Event]:
        """What has arrived, at most a queue's length; waits a turn for the first."""
        events: list[Event] = []
        try:
            events.append(self._events.get(timeout=_TURN_S))
            while len(events) < EVENTS:
                events.append(self._events.get_nowait())
        except queue.Empty:
            pass
        return events

    def _handle(self, events: list[Event]) -> list[Delivery]:
        """Act on everything but deliveries, which are returned: they go into one transaction."""
        deliveries = []
        for event in events:
            if isinstance(event, Delivery):
                deliveries.append(event)
                continue
            try:
                self._on(event)
            except sqlite3.Error as error:
                self._journal_failed(error)
        return deliveries

    def _on(self, event: Connected | Disconnected | Wake | Joined | Lost | Message) -> None:
        match event:
            case Connected():
                self._outbox.connected(event.connection, event.max_packet)
                self._journal.subscribed(self._filters)
            case Disconnected():
                self._outbox.disconnected(event.connection)
            case Joined():
                _log.info("joined context")
                self._requests.introduce()
                self._appends.joined()
                self._requests.joined()
            case Lost():
                _log.warning("context is gone, alarms wait for it", reason=event.reason)
                self._requests.lost()
                self._appends.lost()
                self._pump.lost_seen()
            case Wake():
                pass  # the outbox looks every turn
            case StreamAppended() | StreamRefused():
                self._appends.handle(event)
            case _:
                self._requests.handle(event)

    def _take(self, deliveries: list[Delivery]) -> None:
        """Journal, commit, then acknowledge. What cannot be written now is held, with all behind it."""
        self._missed |= len(self._held) + len(deliveries) > _HELD
        self._held.extend(deliveries)
        if not self._held or time.monotonic() < self._retry_at:
            return
        try:
            with self._journal.batch():
                taken = self._write_held()
                self._appends.make_room()
        except sqlite3.Error as error:
            self._journal_failed(error)
            return
        for _ in taken:
            self._link.acknowledge(self._held.popleft())
        self._note_acknowledged([seq for seq in taken if seq is not None])
        if self._missed and not self._held:
            self._missed = False
            self._link.drop_connection()

    def _write_held(self) -> list[int | None]:
        taken: list[int | None] = []
        for delivery in self._held:
            try:
                taken.append(self._intake.take(delivery))
            except JournalFull:
                self._pause("the journal is full of unanswered alarms; the broker keeps the next ones")
                break
        else:
            self._trouble = ""
        return taken

    def _note_acknowledged(self, seqs: list[int]) -> None:
        if seqs:
            try:
                self._journal.acknowledged(seqs)
            except sqlite3.Error as error:
                self._journal_failed(error)

    def _advance(self) -> None:
        """Submit and publish what can be."""
        if self._pump.error is not None:
            raise self._pump.error
        if time.monotonic() < self._retry_at:
            return
        try:
            self._requests.tick()
            self._appends.tick()
            self._appends.fill()  # before the alarms that are asked behind them
            self._requests.fill()
            self._outbox.pump()
        except sqlite3.Error as error:
            self._journal_failed(error)

    def _journal_failed(self, error: sqlite3.Error) -> None:
        self._requests.forget()
        self._appends.forget()
        self._pause(f"the journal cannot be written ({error}); nothing is acknowledged until it can")

    def _pause(self, trouble: str) -> None:
        """Leave the journal alone for a moment; said once for each trouble."""
        self._retry_at = time.monotonic() + _HELD_RETRY_S
        if trouble != self._trouble:
            _log.error(trouble)
            self._trouble = trouble
