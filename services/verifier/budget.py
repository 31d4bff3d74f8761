"""How many draft nodes a pass verifies, and of which sequences.

Every sequence offers its likeliest nodes. Taken in descending path probability over all of them, each adds
its probability to the tokens that the pass is expected to bring, and its row to what the pass costs; the
number of nodes with the most tokens for the time wins. Marginal value spreads them over the sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from shared.tree import Selection, TokenTrie

_LEAST = math.log(0.02)  # a path that is less likely never pays
_GAIN = 1.02  # drafts have to bring more than this much of plain decoding: estimates have errors


class Offer(Protocol):
    """A decoding sequence as the budget sees it."""

    @property
    def room(self) -> int:
        """Positions behind the computed ones that have a block."""

    @property
    def answer_left(self) -> int: ...
    @property
    def visible(self) -> int:
        """Committed positions that its next token attends to."""

    @property
    def trie(self) -> TokenTrie: ...


@dataclass(frozen=True, slots=True)
class Spread:
    """Drafts of each sequence, and what their pass is expected to bring and to take."""

    drafts: list[Selection]
    tokens: float
    cost: float  # a pass of one row without a context is 1

    @property
    def rows(self) -> int:
        return len(self.drafts) + sum(len(selection) for selection in self.drafts)


class Budget:
    """Chooses with what `cost` and `calibration` have learnt."""

    def __init__(self, cost: PassCost, calibration: Calibration) -> None:
        self.cost = cost
        self.calibration = calibration

    def spread(self, offers: Sequence[Offer], each: int, nodes: int, chunk: int) -> Spread:
        """At most `each` draft nodes a sequence, `nodes` in all, beside a prefill chunk of `chunk` rows."""
        weigh = self.calibration.weigh
        best = [o.trie.best(min(each, nodes), min(o.room, o.answer_left) - 1, _LEAST, weigh) for o in offers]
        ranked = sorted(
            ((score, i) for i, selection in enumerate(best) for score in selection.scores),
            key=lambda node: -node[0],
        )
        n, tokens, cost = self._most_for_the_time(offers, ranked[:nodes], chunk)
        kept = [0] * len(offers)
        for _, i in ranked[:n]:
            kept[i] += 1
        return Spread([s.first(k) for s, k in zip(best, kept, strict=True)], tokens, cost)

    def _most_for_the_time(
        self, offers: Sequence[Offer], ranked: Sequence[tuple[float, int]], chunk: int
    ) -> tuple[int, float, float]:
        """Number of ranked nodes (log probability, index of its offer), expected tokens, relative cost."""
        curve, attended, least = self.cost.curve, self.cost.attended, 0.0
        tokens, rows = float(len(offers)), len(offers)
        looks = attended * sum(offer.visible for offer in offers)
        beside = 0.0
        if chunk:
            # In company of a chunk every row costs what a chunk's row does, if not more.
            beside, least = chunk * self.cost.chunk_row, self.cost.chunk_row
        cost = curve[rows] + looks + beside
        chosen, best = (0, tokens, cost), tokens / cost * _GAIN
        floor = curve[rows]
        for n, (score, i) in enumerate(ranked, start=1):
            rows += 1
            tokens += math.exp(score)
            looks += attended * offers[i].visible
            floor = max(curve[rows], floor + least)
            cost = floor + looks + beside
            if tokens / cost > best:
                chosen, best = (n, tokens, cost), tokens / cost
        return chosen
