"""Drafts by suffix lookup: what followed the last times a text ended like this?

    tokens   … 7 3 9 4 1 8 …………… 7 3 9 4 │          the last four tokens occurred before:
                     └── continuation             draft 1, 8, …

Looked up are the sequence itself, the plant's earlier answers and its lexicon. The native `TextDraft` grows a
tree from the matches; here is what it is told about the plant and about how well its drafts did lately.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from services.draft.history import ANSWER_TOKENS, Answer
from services.draft.plant import LEARNING_RATE, QUERY_TOKENS, Plant, Relatives, TextSource, request_of
from shared.bus.messages.sequences import SeqOpen, Source
from shared.native import ContextIndex, TextDraft

NODES = 48  # of a draft
LONGEST_DRAFT = 24
OWN_TOKENS = 16_384  # of a sequence that are looked up
LEAST_LOGQ = math.log(0.02)  # a path less likely than this is not drafted further

_MOOD_RATE = 0.12
_OWN_KINSHIP = np.zeros(1, np.float32)

Tree: TypeAlias = tuple[list[int], list[int], list[int], list[float]]  # tokens, parents, sources, logq


class Retrieval:
    """The retrieval source of one sequence."""

    def __init__(self, snapshot: SeqOpen, plant: Plant) -> None:
        tokens = snapshot.tokens
        prompt = max(snapshot.prompt_len - snapshot.first, 0)
        self._request = request_of(snapshot)
        self._answer = tokens[prompt : prompt + ANSWER_TOKENS]
        self._recent = np.array(tokens[-QUERY_TOKENS:], np.int32)
        self._own = ContextIndex(min(len(tokens) + snapshot.max_tokens, OWN_TOKENS) + 2, 1)
        self._own.begin()
        self._own.extend(np.array(tokens, np.int32))
        self._plant = plant
        self._mood = plant.mood
        self._relatives = Relatives(self._request, plant)
        self._draft = TextDraft(NODES)

    def advance(self, tokens: Sequence[int]) -> None:
        """New known tokens: learn how good the last draft was and index them."""
        if not tokens:
            return
        new = np.array(tokens, np.int32)
        plant = self._plant
        right = self._draft.learn(new, LEARNING_RATE, plant.weights)
        plant.learned(right)
        for hit in right or [False]:
            self._mood += _MOOD_RATE * (hit - self._mood)
        self._own.extend(new)
        self._recent = np.concatenate((self._recent, new))[-QUERY_TOKENS:]
        self._answer += tokens[: ANSWER_TOKENS - len(self._answer)]

    def draft(self) -> Tree:
        """What may follow, the likeliest paths first; empty when nothing matches."""
        sources: list[TextSource] = [(self._own, _OWN_KINSHIP, Source.RETRIEVAL), *self._relatives.sources()]
        weights = self._plant.weights
        return self._draft.grow(sources, self._recent, self._mood, weights, NODES, LONGEST_DRAFT, LEAST_LOGQ)

    def candidates(self) -> list[tuple[int, list[float]]]:
        """Tokens that the last draft had to choose from behind the known ones, with their evidence."""
        return [(token, evidence) for token, _, evidence in self._draft.candidates()]

    def finished(self) -> None:
        """The answer is complete: others may draft from it."""
        if self._plant.history is not None:
            self._plant.history.add(Answer.of(self._request, self._answer))
