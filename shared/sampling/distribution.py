"""Probabilities of the next token, and what speculative sampling does with them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Weights = NDArray[np.float64]

_BLOCK = 64  # weights that are summed up before one of them is looked for
_SMALL = 1024  # that many are summed up at once


class Distribution:
    """Tokens with weights ≥ 0 that need not add up to 1. Immutable.

    `ids` None: token i has weight i, the whole vocabulary in order. Otherwise `ids` are the tokens with a
    weight and all others have none.
    """

    __slots__ = ("ids", "total", "weights")

    def __init__(self, weights: Weights, ids: Ids | None = None) -> None:
        self.weights = weights
        self.ids = ids
        self.total = float(weights.sum())

    @classmethod
    def point(cls, token: int) -> Distribution:
        return cls(np.ones(1), np.array([token], np.int64))

    def probability(self, token: int) -> float:
        index = self._index(token)
        return 0.0 if index is None else float(self.weights[index]) / self.total

    def draw(self, u: float) -> int:
        """The token in whose share of [0, 1) u lies, the shares laid out in the order of the weights."""
        index = _find(self.weights, u)
        return index if self.ids is None else int(self.ids[index])

    def without(self, tokens: Collection[int]) -> Distribution:
        """What is left of it when none of these tokens comes."""
        found = [index for token in tokens if (index := self._index(token)) is not None]
        if not found:
            return self
        weights = self.weights.copy()
        weights[found] = 0.0
        return Distribution(weights, self.ids)

    def minus(self, other: Distribution) -> Distribution:
        """max(0, p - q) of the probabilities: what must come when a token drawn from `other` was rejected.

        Leviathan et al. 2023 (arXiv:2211.17192), section 2.3. `other` has `ids`. The total is 0 when there is
        no difference.
        """
        assert other.ids is not None
        taken = other.weights * (self.total / other.total)
        if self.ids is not None:
            return Distribution(
                np.maximum(self.weights - (self.ids[:, None] == other.ids) @ taken, 0), self.ids
            )
        weights = self.weights.copy()
        weights[other.ids] = np.maximum(weights[other.ids] - taken, 0)
        return Distribution(weights)

    def _index(self, token: int) -> int | None:
        if self.ids is None:
            return token
        same = self.ids == token
        index = int(same.argmax()) if len(same) else -1
        return index if index >= 0 and same[index] else None


def _find(weights: Weights, u: float) -> int:
    """Index of the first weight at which the running sum exceeds u times the sum; a weight of 0 never is."""
    if len(weights) <= _SMALL:
        sums = weights.cumsum()
        return int(sums.searchsorted(u * sums[-1], side="right"))
    starts = np.arange(0, len(weights), _BLOCK)
    sums = np.add.reduceat(weights, starts).cumsum()
    target = u * float(sums[-1])
    block = int(np.searchsorted(sums, target, side="right"))
    rest = target - (float(sums[block - 1]) if block else 0.0)
    inner = weights[block * _BLOCK : (block + 1) * _BLOCK]
    index = int(np.searchsorted(inner.cumsum(), rest, side="right"))
    if index == len(inner):  # rounding: two ways to add the same weights
        index = int(np.flatnonzero(inner)[-1])
    return block * _BLOCK + index
