"""The lexicon as a text to draft from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.bus.messages import Source
from shared.lexicon import Passage
from shared.native import ContextIndex

_OFTEN = 0.5  # what a passage that was found very often counts, like the kinship of an earlier answer


class Lexicon:
    """`kinship`: float32 of every passage; one that was found n times counts 0.5 (1 - 1 / n)."""

    source = Source.LEXICON

    def __init__(self, passages: Sequence[Passage]) -> None:
        size = sum(len(passage.tokens) + 1 for passage in passages)
        self.index = ContextIndex(max(size, 2), max(len(passages), 1))
        for passage in passages:
            self.index.begin()
            self.index.extend(passage.tokens)
        counts = np.array([max(passage.count, 1) for passage in passages], np.float32)
        self.kinship = (_OFTEN * (1.0 - 1.0 / counts)).astype(np.float32)
