"""The pool of a writer that stays when it cannot attach: context is about to mend what is wrong.

        ┌────── back-off ───────┐
joined ─▶ attempt ── fails ─────┘    (said once for each reason)
             │ the generation of the Welcome
             ▼
         attached ── joined, another generation ──▶ attempt
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from shared.config.errors import RinglineError
from shared.kv.attach import Attached

FIRST_RETRY_S = 0.2
LAST_RETRY_S = 5.0

_log = structlog.get_logger()


class LatePool:
    """`attach` maps the pool as it is now. Times are monotonic seconds."""

    def __init__(self, attach: Callable[[], Attached]) -> None:
        self._attach = attach
        self._generation = 0
        self._due: float | None = None
        self._delay_s = FIRST_RETRY_S
        self._said = ""
        self.attached: Attached | None = None

    def joined(self, generation: int, now: float) -> None:
        """A Welcome: only the pool of its generation will do."""
        self._generation = generation
        if self.attached is not None and self.attached.generation == generation:
            return
        self.attached = None  # unmaps the older one
        self._due, self._delay_s = now, FIRST_RETRY_S

    def lost(self) -> None:
        """No attempts until the next Welcome."""
        self._due = None

    def attempt(self, now: float) -> bool:
        """Attach if that is due; True when it has just worked."""
        if self._due is None or now < self._due:
            return False
        problem = self._try()
        if not problem:
            self._due = None
            if self._said:
                self._said = ""
                _log.info("the pool is attached")
            return True
        self._due = now + self._delay_s
        self._delay_s = min(2 * self._delay_s, LAST_RETRY_S)
        if problem != self._said:
            self._said = problem
            _log.error("the pool cannot be attached; trying again", reason=problem)
        return False

    def _try(self) -> str:
        """Why it has failed, "" when it has not."""
        try:
            attached = self._attach()
        except (RinglineError, OSError) as error:
            return str(error)
        if attached.generation != self._generation:
            return "kv.ctl is not the one of the context that this process has joined"
        self.attached = attached
        return ""
