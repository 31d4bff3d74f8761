"""The gateway's bus pump stops whatever it waits for."""

from __future__ import annotations

import queue
import threading
from typing import Any

from services.gateway.pump import BusPump
from shared.bus.events import Lost


class LosingBus:
    """Says `Lost` once, at the moment the pump has already been told to stop."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self.closed = ""

    def start(self) -> None:
        pass

    def receive(self, timeout_s: float) -> Lost:
        self._stopping.wait(timeout_s)
        return Lost("context stops")

    def close(self, reason: str) -> None:
        self.closed = reason


def test_closing_does_not_hang_when_context_is_lost_at_the_same_moment() -> None:
    stopping = threading.Event()
    bus = LosingBus(stopping)
    events: queue.Queue[Any] = queue.Queue(4)
    pump = BusPump(bus, events)  # type: ignore[arg-type]
    pump.start()
    closer = threading.Thread(target=pump.close, daemon=True)
    closer.start()
    stopping.set()
    closer.join(5)
    assert not closer.is_alive()
    assert bus.closed == "gateway stops"
