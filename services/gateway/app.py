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
from collections.abc import Callable

import structlog

from services.gateway.appends import Appends
from services.gateway.events import Connected, Delivery, Disconnected, Wake
from services.gateway.inbox import Inbox
from services.gateway.intake import Intake, reroute
from services.gateway.journal import Journal
from services.gateway.journal_file import DiskFull
from services.gateway.mqtt import MqttLink
from services.gateway.outbox import Outbox
from services.gateway.prompt import Prompter
from services.gateway.pump import BusPump
from services.gateway.requests import Requests
from services.gateway.routes import RouteTable
from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import Joined, Lost
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Hello
from shared.bus.messages.requests import StreamAppended, StreamRefused
from shared.config.load import config_hash
from shared.config.settings import Settings
from shared.model.open import open_model

EVENTS = 256
_TURN_S = 0.1
_RETRY_S = 1.0
_FULL_RETRY_S = 2.0
_SETTLE_S = 1.0
_SILENCE_S = 60.0  # before the same trouble is said again

_log = structlog.get_logger()
Event = Delivery | Connected | Disconnected | Wake | Joined | Lost | Message


def main(settings: Settings, stop: threading.Event) -> int:
    """Run until `stop` is set. RinglineError for what has to be changed before it can run."""
    incarnation = time.monotonic_ns()
    routes = RouteTable(settings)
    model = open_model(settings.models.target, settings.paths)
    prompter = Prompter(model)
    for profile in settings.profiles:
        prompter.prefix(profile)  # takes a while, and fails when it does before anything is connected
    hello = Hello(
        role="gateway",
        incarnation=incarnation,
        pid=os.getpid(),
        config_hash=config_hash(settings),
        vocabulary_hash=model.info.vocabulary_hash,
    )
    journal = _open_journal(settings, routes, stop)
    if journal is None:
        return 0
    gateway = Gateway(settings, routes, journal, prompter, BusClient(Endpoints.of(settings.paths), hello))
    try:
        gateway.run(stop)
    finally:
        gateway.close()
    return 0


def _open_journal(settings: Settings, routes: RouteTable, stop: threading.Event) -> Journal | None:
    """The journal, with its alarms on the routes of this configuration. While its disk is full it is waited
    for: the alarms stay with the broker. None when that ends with `stop`."""
    path = settings.paths.data / "journal.db"
    said = False
    while not stop.is_set():
        try:
            journal = Journal(path, settings.gateway.journal_max_alarms)
        except DiskFull:
            if not said:
                _log.error(f"{path}: the disk is full; waiting for room, the broker keeps the alarms")
            said = True
            stop.wait(_FULL_RETRY_S)
            continue
        try:
            reroute(journal, routes, settings.gateway.dead_letter_topic)
        except sqlite3.Error as error:
            _log.error(f"{path}: alarms of an earlier configuration keep its routes ({error})")
        return journal
    return None


class Gateway:
    def __init__(
        self, settings: Settings, routes: RouteTable, journal: Journal, prompter: Prompter, bus: BusClient
    ) -> None:
        self._events: queue.Queue[Event] = queue.Queue(EVENTS)
        self._journal = journal
        self._bus = bus
        self._no_broker = f"no connection to the MQTT broker at {settings.mqtt.host}:{settings.mqtt.port}"
        bus.note = self._no_broker
        self._filters = routes.filters
        stale = sorted(journal.subscriptions() - set(self._filters))
        self._link = MqttLink(
            settings.mqtt, routes.filters, stale, settings.gateway.max_payload_bytes, self._events
        )
        self._pump = BusPump(bus, self._events)
        self._appends = Appends(settings, journal, prompter, bus.send, routes.leads_to)
        self._inbox = Inbox(journal, Intake(settings, routes, journal), self._link, self._appends.make_room)
        self._outbox = Outbox(journal, self._link, settings.gateway.dead_letter_topic)
        self._requests = Requests(settings, journal, prompter, bus.send, self._link.stream)
        self._trouble = _Trouble("answers")
        self._line_trouble = _Trouble("log lines")

    def run(self, stop: threading.Event) -> None:
        self._pump.start()
        self._link.start()
        while not stop.is_set():
            self._inbox.hold(self._handle(self._drain()))
            self._inbox.take()
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
                self._bus.note = ""
                self._outbox.connected(event.connection, event.max_packet)
                self._journal.subscribed(self._filters)
            case Disconnected():
                self._inbox.disconnected(event.connection)
                self._bus.note = self._no_broker
                self._outbox.disconnected(event.connection)
            case Joined():
                _log.info("joined context")
                self._requests.introduce()
                self._with_lines(self._appends.joined)
                self._requests.joined()
            case Lost():
                _log.warning("context is gone, alarms wait for it", reason=event.reason)
                self._requests.lost()
                self._appends.lost()
                self._pump.lost_seen()
            case Wake():
                pass  # the outbox looks every turn
            case StreamAppended() | StreamRefused():
                self._with_lines(lambda: self._appends.handle(event))
            case _:
                self._requests.handle(event)

    def _advance(self) -> None:
        """Submit and publish what can be."""
        if self._pump.error is not None:
            raise self._pump.error
        if self._line_trouble.over:  # before the alarms that are asked behind them
            self._with_lines(self._advance_lines)
        if not self._trouble.over:
            return
        try:
            self._requests.tick()
            self._requests.fill()
            self._outbox.pump()
        except sqlite3.Error as error:
            self._journal_failed(error)

    def _advance_lines(self) -> None:
        self._appends.tick()
        self._appends.fill()

    def _with_lines(self, action: Callable[[], None]) -> None:
        """What fails with log lines keeps no alarm from its answer."""
        try:
            action()
        except sqlite3.Error as error:
            self._appends.forget()
            self._journal.relieve()
            self._line_trouble.begin(error)

    def _journal_failed(self, error: sqlite3.Error) -> None:
        self._requests.forget()
        self._journal.relieve()
        self._trouble.begin(error)


class _Trouble:
    """The journal cannot be written: it is left alone for a moment, which is said once in a while."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._until = 0.0
        self._say_at = 0.0

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._until

    def begin(self, error: sqlite3.Error) -> None:
        now = time.monotonic()
        self._until = now + _RETRY_S
        if now >= self._say_at:
            _log.error(f"the journal cannot be written ({error}); {self._what} wait until it can")
            self._say_at = now + _SILENCE_S
