"""Counts what speculation does, for the log and for benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from shared.tree import Survival

EVERY_S = 60.0  # between two lines in the log, while passes run

_log = structlog.get_logger()


@dataclass(slots=True)
class Tally:
    """Since start. `tokens`, `drafted` and `accepted` are summed over the sequences of all passes.

    `survival` is about the pending tries: what of all that was proposed a rejection leaves.
    """

    passes: int = 0
    plain: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    survival: Survival = field(default_factory=Survival)
    _logged_at: float | None = None

    def ran(self, now: float, speculated: bool) -> None:
        """A pass was run; monotonic seconds."""
        self.passes += 1
        self.plain += not speculated
        if self._logged_at is None:
            self._logged_at = now
        elif now - self._logged_at > EVERY_S:
            self._logged_at = now
            self.say()

    def say(self) -> None:
        """One line, when there was something to count."""
        if self.passes:
            _log.info("speculation", **self.figures())

    def sequence(self, tokens: int, drafted: int, accepted: int) -> None:
        """What a pass did for one sequence."""
        self.tokens += tokens
        self.drafted += drafted
        self.accepted += accepted

    def figures(self) -> dict[str, float]:
        """Every count, and those of `survival`."""
        return {
            "passes": self.passes,
            "plain": self.plain,
            "tokens": self.tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            **self.survival.figures(),
        }
