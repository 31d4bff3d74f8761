"""Counts what speculation does, for the log and for benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

EVERY_S = 60.0  # between two lines in the log, while passes run

_log = structlog.get_logger()


@dataclass(slots=True)
class Tally:
    """Since start. `tokens`, `drafted` and `accepted` are summed over the sequences of all passes.

    A rejection is a pass after which the likeliest draft had been another one. Of the `nodes` that had been
    drafted by then it took `used` into the answer and `kept` in the trie; the others were drafted in vain.
    """

    passes: int = 0
    plain: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    rejections: int = 0
    nodes: int = 0
    used: int = 0
    kept: int = 0
    _logged_at: float | None = None

    def ran(self, now: float, speculated: bool) -> None:
        """A pass was run; monotonic seconds."""
        self.passes += 1
        self.plain += not speculated
        if self._logged_at is None:
            self._logged_at = now
        elif now - self._logged_at > EVERY_S:
            self._logged_at = now
            _log.info("speculation", **self.figures())

    def sequence(self, tokens: int, drafted: int, accepted: int) -> None:
        """What a pass did for one sequence."""
        self.tokens += tokens
        self.drafted += drafted
        self.accepted += accepted

    def rejection(self, nodes: int, used: int, kept: int) -> None:
        self.rejections += 1
        self.nodes += nodes
        self.used += used
        self.kept += kept

    def figures(self) -> dict[str, float]:
        """Every count, and the shares of all nodes at rejections that were used and kept."""
        return {
            "passes": self.passes,
            "plain": self.plain,
            "tokens": self.tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "rejections": self.rejections,
            "used_share": round(self.used / max(1, self.nodes), 3),
            "kept_share": round(self.kept / max(1, self.nodes), 3),
        }
