"""How many draft nodes a pass verifies, and of which sequences.

Every sequence offers its likeliest nodes. Taken in descending path probability over all of them, each adds
its probability to the tokens that the pass is expected to bring, and its row to what the pass costs; the
number of nodes with the most tokens for the time wins. Marginal value spreads them over the sequences. A
token counts more in the answer to a severe alarm: what others draft must not hold that answer up for little.
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
    def severity(self) -> int: ...
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


class Budget:
    """Chooses with what `cost` and `calibration` have learnt."""

    def __init__(self, cost: PassCost, calibration: Calibration) -> None:
        self.cost = cost
        self.calibration = calibration

    def spread(self, offers: Sequence[Offer], each: int, nodes: int, chunk: int) -> Spread:
        """At most `each` draft nodes a sequence, `nodes` in all, beside a prefill chunk of `chunk` rows."""
        weigh = self.calibration.weigh
        best = [o.trie.best(min(each, nodes), min(o.room, o.answer_left) - 1, _LEAST, weigh) for o in offers]
        weights = [1 + offer.severity for offer in offers]
        ranked = sorted(
            ((weights[i] * math.exp(s), i) for i, drafts in enumerate(best) for s in drafts.scores),
            key=lambda node: -node[0],
        )
        n, cost = self._most_for_the_time(offers, sum(weights), ranked[:nodes], chunk)
        kept = [0] * len(offers)
        for _, i in ranked[:n]:
            kept[i] += 1
        drafts = [selection.first(k) for selection, k in zip(best, kept, strict=True)]
        tokens = len(offers) + sum(value / weights[i] for value, i in ranked[:n])
        return Spread(drafts, tokens, cost)

    def _most_for_the_time(
        self, offers: Sequence[Offer], roots: float, ranked: Sequence[tuple[float, int]], chunk: int
    ) -> tuple[int, float]:
        """How many of the ranked nodes (weight times probability, index of the offer); the pass's cost.

        `roots`: what the tokens behind the roots are worth.
        """
        curve, attended, least = self.cost.curve, self.cost.attended, 0.0
        value, rows = roots, len(offers)
        looks = attended * sum(offer.visible for offer in offers)
        beside = 0.0
        if chunk:
            # In company of a chunk every row costs what a chunk's row does, if not more.
            beside, least = chunk * self.cost.chunk_row, self.cost.chunk_row
        cost = curve[rows] + looks + beside
        chosen, best = (0, cost), value / cost * _GAIN
        floor = curve[rows]
        for n, (gain, i) in enumerate(ranked, start=1):
            rows += 1
            value += gain
            looks += attended * offers[i].visible
            floor = max(curve[rows], floor + least)
            cost = floor + looks + beside
            if value / cost > best:
                chosen, best = (n, cost), value / cost
        return chosen
