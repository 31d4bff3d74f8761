"""From passages of text to those that are kept: each once, with its count, within a bound of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from shared.config.errors import RinglineError
from shared.lexicon.file import MAX_PASSAGES, Passage

LONGEST = 1024  # tokens of a passage; a longer one is cut into several
MAX_DISTINCT = 1 << 20  # passages that are counted
_LEAST = 2  # tokens: one alone predicts nothing
_LONGEST_TOKEN = 32  # characters; text that is longer than such tokens fill the room with is not encoded


@dataclass(frozen=True, slots=True)
class Built:
    passages: list[Passage]
    left_out: int  # passages for which there was no room, or not for all of them

    @property
    def tokens(self) -> int:
        return sum(len(passage.tokens) for passage in self.passages)


def build(texts: Iterable[str], encode: Callable[[str], list[int]], tokens: int) -> Built:
    """The passages found most often come first, equals in their order, until there are `tokens` tokens."""
    counts: Counter[str] = Counter()
    for text in texts:
        if len(counts) >= MAX_DISTINCT and text not in counts:
            raise RinglineError(f"more than {MAX_DISTINCT} different passages; give fewer inputs")
        counts[text] += 1
    kept: list[Passage] = []
    room, left_out = tokens, 0
    for text, count in counts.most_common():
        parts = _parts(encode(text[: room * _LONGEST_TOKEN])) if room >= _LEAST else []
        taken = _that_fit(parts, room, MAX_PASSAGES - len(kept))
        kept += [Passage(np.array(part, np.int32), count) for part in taken]
        left_out += room < _LEAST or len(taken) < len(parts)
        room -= sum(map(len, taken))
    return Built(kept, left_out)


def _parts(ids: list[int]) -> list[list[int]]:
    return [part for i in range(0, len(ids), LONGEST) if len(part := ids[i : i + LONGEST]) >= _LEAST]


def _that_fit(parts: list[list[int]], room: int, most: int) -> list[list[int]]:
    """The first of them: a log without an empty line is one passage, and much of it is better than none."""
    ends = accumulate(map(len, parts))
    return [part for part, end in zip(parts[:most], ends, strict=False) if end <= room]
