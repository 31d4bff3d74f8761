"""Warnings about what others send: they decide how much of it there is, not how long the log gets."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

INTERVAL_S = 10.0

_log = structlog.get_logger()


class SparseWarning:
    """One kind of warning: its first occurrence, then at most one line in INTERVAL_S with a count.

    `unsaid` on a line is how many of its kind were not written since the line before.
    """

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._clock = clock
        self._next_at = float("-inf")
        self._unsaid = 0

    def __call__(self, **fields: object) -> None:
        now = self._clock()
        if now < self._next_at:
            self._unsaid += 1
            return
        self._next_at = now + INTERVAL_S
        if self._unsaid:
            fields["unsaid"] = self._unsaid
            self._unsaid = 0
        _log.warning(self._event, **fields)
