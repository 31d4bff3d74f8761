"""The signals that ask a process to stop in order, leaving nothing behind."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def stop_on_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    """Call `handler` for each of STOP_SIGNALS; a SIGHUP that is ignored (nohup) stays so."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def stop_event() -> threading.Event:
    """An event that is set a moment after one of STOP_SIGNALS.

    A handler runs in the main thread between any two of its instructions, also inside `Event.wait`, which
    holds the event's lock: an `Event.set` in the handler would then wait for ever. `SimpleQueue.put` may be
    called there by its contract, and a thread does the rest.
    """
    stop = threading.Event()
    received: queue.SimpleQueue[int] = queue.SimpleQueue()

    def wait_for_signal() -> None:
        while True:
            received.get()
            stop.set()

    threading.Thread(target=wait_for_signal, name="stop", daemon=True).start()
    stop_on_signals(lambda number, _frame: received.put(number))
    return stop
