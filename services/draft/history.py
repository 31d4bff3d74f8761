"""What this plant was asked and answered before: one bounded text that all sequences draft from.

    document    … alarm, as the prompt ended │ answer …        mark = tokens of the alarm

Only answers that were finished come in. The oldest go when the text is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.native import ContextIndex

REQUEST_TOKENS = 96  # of a prompt's end that are kept: the alarm, not the profile in front of it
ANSWER_TOKENS = 4096  # of an answer that are kept
LEAST_ANSWER = 4
_DOCUMENT = 64  # tokens that a document has at least, for the number of them that is room for


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """int32 tokens of the prompt's end (the first `request` of them) and of the answer."""

    tokens: NDArray[np.int32]
    request: int

    @staticmethod
    def of(request: Sequence[int], answer: Sequence[int]) -> Answer:
        """Of a whole prompt only the end is kept, of a long answer only the beginning."""
        kept = request[-REQUEST_TOKENS:]
        return Answer(np.array([*kept, *answer[:ANSWER_TOKENS]], np.int32), len(kept))


class History:
    """`tokens`: room for so many. `keep` is told of every answer that is added later."""

    def __init__(
        self, tokens: int, answers: Iterable[Answer] = (), keep: Callable[[Answer], None] = lambda _: None
    ) -> None:
        self.index = ContextIndex(max(tokens, 2), max(tokens // _DOCUMENT, 1))
        self._longest = tokens // 4
        for answer in answers:
            self._enter(answer)
        self._keep = keep

    @property
    def version(self) -> int:
        """Changes when documents come or go."""
        return self.index.dropped + self.index.documents

    def add(self, answer: Answer) -> None:
        """A finished answer; one that is nothing to draft from, or too long for the history, is left out."""
        if answer.request + LEAST_ANSWER <= len(answer.tokens) <= self._longest:
            self._enter(answer)
            self._keep(answer)

    def kinship(self, request: NDArray[np.int32]) -> NDArray[np.float32]:
        """How alike the request of each document is, 0 to 1."""
        return self.index.kinship(request)

    def _enter(self, answer: Answer) -> None:
        self.index.begin(answer.request)
        self.index.extend(answer.tokens)
