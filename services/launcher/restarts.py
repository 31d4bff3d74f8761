"""When a process that has ended is started again (pure)."""

from __future__ import annotations

from collections import deque

BACKOFF_FIRST_S = 0.2
BACKOFF_LIMIT_S = 5.0


class RestartBudget:
    """At most `restarts` within any `window_s` seconds, each later than the one before.

    A process that has run for `window_s` is stable: its deaths before that are forgotten.
    """

    def __init__(self, restarts: int, window_s: float) -> None:
        self._restarts = restarts
        self._window_s = window_s
        self._deaths: deque[float] = deque(maxlen=restarts + 1)
        self.was_stable = False  # it has once run for `window_s`

    def delay_after(self, started: float, died: float) -> float | None:
        """Seconds to wait before the next start (monotonic times in); None when the budget is spent."""
        if died - started >= self._window_s:
            self._deaths.clear()
            self.was_stable = True
        self._deaths.append(died)
        recent = sum(died - death < self._window_s for death in self._deaths)
        if recent > self._restarts:
            return None
        return float(min(BACKOFF_FIRST_S * 2 ** (recent - 1), BACKOFF_LIMIT_S))
