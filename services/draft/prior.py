"""The branch prior: what the plant's texts say about the tokens that a model drafts.

    score = log q + λ · log prior

A small draft model speaks of pumps in general, the plant's earlier answers of this pump. The prior is counted
in history and lexicon (shared/native/core/branch_prior.hpp); where they do not know the context it is the
same for every token and changes nothing. λ was chosen on a part of the TEP alarms (docs/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from services.draft.plant import QUERY_TOKENS, Plant, Relatives, request_of
from shared.bus.messages.sequences import SeqOpen
from shared.native import log_prior

WEIGHT = 0.4  # λ
UNKNOWN = math.log(1 / 4096)  # prior of a token that no text has

Prior: TypeAlias = Callable[[Sequence[int]], list[float]]  # log prior of tokens behind one context


class BranchPrior:
    """Of one sequence. Used by the model's thread: every look at the texts is one native call."""

    def __init__(self, snapshot: SeqOpen, plant: Plant) -> None:
        self._relatives = Relatives(request_of(snapshot), plant)
        self._recent = snapshot.tokens[-QUERY_TOKENS:]

    def advance(self, tokens: Sequence[int]) -> None:
        """New known tokens."""
        self._recent = [*self._recent, *tokens][-QUERY_TOKENS:]

    def behind(self, path: Sequence[int]) -> Prior:
        """The prior of what follows the known tokens and `path`."""
        query = np.array([*self._recent, *path][-QUERY_TOKENS:], np.int32)
        return lambda tokens: log_prior(self._relatives.sources(), query, np.array(tokens, np.int32))


def reorder(
    tokens: list[int], logq: list[float], prior: list[float], weight: float = WEIGHT
) -> tuple[list[int], list[float]]:
    """The tokens by their score, the best first, and the log probabilities that the scores stand for.

    What the model gives to all other tokens keeps its share, with the prior of a token that no text has.
    """
    scores = [q + weight * p for q, p in zip(logq, prior, strict=True)]
    left = max(1.0 - math.fsum(map(math.exp, logq)), 0.0) * math.exp(weight * UNKNOWN)
    total = math.log(math.fsum(map(math.exp, scores)) + left)
    order = sorted(range(len(tokens)), key=lambda i: -scores[i])
    return [tokens[i] for i in order], [min(scores[i] - total, 0.0) for i in order]
