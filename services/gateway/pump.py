"""Carries bus events into the gateway's one queue."""

from __future__ import annotations

import queue
import threading
from typing import Any

from shared.bus.client import BusClient
from shared.bus.events import Lost

_TURN_S = 0.5


class BusPump:
    """After `Lost` nothing more is received before the loop has called `lost_seen`.

    The bus sends again from the moment a Joined was received; the loop must have stopped by then, or a
    request would reach the new context before the profile it needs.
    """

    def __init__(self, bus: BusClient, events: queue.Queue[Any]) -> None:
        self._bus = bus
        self._events = events
        self._stop = threading.Event()
        self._go_on = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bus-pump", daemon=True)
        self.error: Exception | None = None  # nothing more will come from the bus

    def start(self) -> None:
        self._bus.start()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._go_on.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._bus.close("gateway stops")

    def lost_seen(self) -> None:
        self._go_on.set()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                event = self._bus.receive(_TURN_S)
                if event is not None:
                    self._go_on.clear()
                    self._put(event)
                    if isinstance(event, Lost):
                        self._await_the_loop()
        except Exception as error:  # BusRefused, or a fault: the loop ends with it
            self.error = error

    def _await_the_loop(self) -> None:
        while not (self._stop.is_set() or self._go_on.wait(_TURN_S)):
            pass

    def _put(self, event: object) -> None:
        while not self._stop.is_set():
            try:
                self._events.put(event, timeout=_TURN_S)
            except queue.Full:
                continue
            return
