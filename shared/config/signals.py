"""The signals that ask a process to stop in order, leaving nothing behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def stop_on_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    """Call `handler` for each of STOP_SIGNALS; a SIGHUP that is ignored (nohup) stays so."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
