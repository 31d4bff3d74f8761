"""The lexicon as a text to draft from."""

from __future__ import annotations

import numpy as np

from shared.lexicon import Passages
from shared.native import ContextIndex

_OFTEN = 0.5  # what a passage that was found very often counts, like the kinship of an earlier answer


class Lexicon:
    """`kinship`: float32 of every passage; one that was found n times counts 0.5 (1 - 1 / n)."""

    def __init__(self, passages: Passages) -> None:
        size = len(passages.tokens) + len(passages.lengths)
        self.index = ContextIndex(max(size, 2), max(len(passages.lengths), 1))
        self.index.fill(passages.tokens, passages.lengths)
        counts = np.maximum(passages.counts, 1).astype(np.float32)
        self.kinship = (_OFTEN * (1.0 - 1.0 / counts)).astype(np.float32)
