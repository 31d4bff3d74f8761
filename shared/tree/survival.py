"""What rejections leave of drafted trees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Survival:
    """Sums over rejections: advances after which the likeliest draft had been another one.

    Of the `nodes` drafted by then `used` entered the answer and `kept` still fit; the others were in vain.
    """

    rejections: int = 0
    nodes: int = 0
    used: int = 0
    kept: int = 0
    shares: float = 0.0  # of each rejection, what it used and kept of its nodes

    def add(self, nodes: int, used: int, kept: int) -> None:
        self.rejections += 1
        self.nodes += nodes
        self.used += used
        self.kept += kept
        self.shares += (used + kept) / nodes if nodes else 0.0

    @property
    def mean(self) -> float:
        """Share of its nodes that a rejection does not throw away, averaged over the rejections."""
        return self.shares / self.rejections if self.rejections else 0.0

    def figures(self) -> dict[str, float]:
        nodes = max(1, self.nodes)
        return {
            "rejections": self.rejections,
            "used_share": round(self.used / nodes, 3),
            "kept_share": round(self.kept / nodes, 3),
            "mean_share": round(self.mean, 3),
        }
