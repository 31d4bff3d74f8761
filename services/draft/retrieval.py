"""Drafts by suffix lookup: what followed the last time the sequence ended like this?

    tokens   … 7 3 9 4 1 8 …………… 7 3 9 4 │          the last four tokens occurred before:
                     └── continuation             draft 1, 8, …

The index maps n-grams of a few orders to where they ended. The longest order is looked up first, shorter ones
only when it is unknown (back-off), and a hit is extended to the left to its true length. How much a match of
some length is worth is learnt from what the target then really said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shared.bus.messages import Source
from shared.tree import TokenTrie

ORDERS = (8, 5, 3, 2)
PLACES = 4  # remembered per n-gram, the latest
LONGEST_MATCH = 32
LONGEST_DRAFT = 24
HISTORY = 16_384  # tokens indexed at most
LEAST_LOGQ = math.log(0.02)  # a path less likely than this is not drafted further

# Upper ends of the match-length classes and the probabilities to begin with.
_CLASSES = ((2, 0.3), (3, 0.4), (4, 0.5), (6, 0.65), (9, 0.8), (16, 0.9), (1 << 30, 0.95))
_PRIOR = 8.0  # trials the initial probability counts for
_FORGET = 256.0  # trials after which old ones count half


class Confidence:
    """Probability that the token after a match of some length is the right one, learnt as it goes."""

    def __init__(self) -> None:
        self._trials = [_PRIOR] * len(_CLASSES)
        self._hits = [_PRIOR * p for _, p in _CLASSES]

    def logq(self, length: int) -> float:
        i = _class(length)
        return math.log(self._hits[i] / self._trials[i])

    def learn(self, length: int, hit: bool) -> None:
        i = _class(length)
        self._trials[i] += 1.0
        # Never certain, never hopeless: a class that draws no trial any more could not recover.
        self._hits[i] = min(max(self._hits[i] + hit, 0.02 * self._trials[i]), 0.99 * self._trials[i])
        if self._trials[i] > _FORGET:
            self._trials[i] /= 2
            self._hits[i] /= 2


def _class(length: int) -> int:
    return next(i for i, (end, _) in enumerate(_CLASSES) if length <= end)


@dataclass(frozen=True, slots=True)
class Match:
    """The last `length` tokens also stand before `at`."""

    at: int
    length: int


class SuffixIndex:
    """Tokens of one sequence and where its n-grams occurred; the older half is forgotten when it is full."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens. Every n-gram is entered when its continuation is known."""
        if len(tokens) > HISTORY:
            self._tokens, self._places, tokens = [], {}, tokens[-HISTORY:]
        for token in tokens:
            self._enter()
            self._tokens.append(token)
        if len(self._tokens) > HISTORY:
            kept = self._tokens[-HISTORY // 2 :]
            self._tokens, self._places = [], {}
            self.extend(kept)

    def matches(self) -> list[Match]:
        """Earlier places that end like the sequence does, the longest first, among equals the latest."""
        for order in ORDERS:
            places = self._places.get(tuple(self._tokens[-order:])) if len(self._tokens) >= order else None
            if places:
                found = [Match(at, self._length(at, order)) for at in places]
                return sorted(found, key=lambda match: (-match.length, -match.at))
        return []

    def continuation(self, match: Match, n: int) -> list[int]:
        """n tokens from `match.at` on; a match that reaches the end is a period and repeats."""
        known = self._tokens[match.at : match.at + n]
        period = len(self._tokens) - match.at
        while len(known) < n:
            known.append(known[len(known) - period])
        return known

    def _enter(self) -> None:
        end = len(self._tokens)
        for order in ORDERS:
            if order <= end:
                places = self._places.setdefault(tuple(self._tokens[end - order :]), [])
                places.append(end)
                if len(places) > PLACES:
                    del places[0]

    def _length(self, at: int, known: int) -> int:
        tokens, end = self._tokens, len(self._tokens)
        longest = min(LONGEST_MATCH, at)
        length = known
        while length < longest and tokens[at - length - 1] == tokens[end - length - 1]:
            length += 1
        return length


class Retrieval:
    """The retrieval source of one sequence. `confidence` may be shared by all of them."""

    def __init__(self, tokens: Sequence[int], confidence: Confidence) -> None:
        self._index = SuffixIndex(tokens)
        self._confidence = confidence
        self._expected: list[int] = []  # what the best match promised
        self._length = 0  # of that match, grown by what has come true

    def advance(self, tokens: Sequence[int]) -> None:
        """New known tokens: learn how good the last promise was and index them."""
        for token in tokens:
            if self._expected:
                hit = token == self._expected.pop(0)
                self._confidence.learn(self._length, hit)
                self._length += 1
                if not hit:
                    self._expected = []
        self._index.extend(tokens)

    def draft(self, base: int) -> TokenTrie:
        """A trie of continuations that follows `base` known tokens; empty when nothing matches."""
        trie = TokenTrie(base)
        matches = self._index.matches()
        for match in matches:
            path = self._index.continuation(match, LONGEST_DRAFT)
            share = sum(self._index.continuation(m, 1) == path[:1] for m in matches) / len(matches)
            logq = self._weigh(match.length, share)
            trie.insert_path(base, path[: len(logq)], Source.RETRIEVAL, logq)
        if matches:
            self._expected = self._index.continuation(matches[0], LONGEST_DRAFT)
            self._length = matches[0].length
        else:
            self._expected = []
        return trie

    def _weigh(self, length: int, share: float) -> list[float]:
        """logq of each token of a path; `share`: how many of the matches agree with its first token."""
        logq = [self._confidence.logq(length) + math.log(share)]
        total = logq[0]
        while len(logq) < LONGEST_DRAFT:
            step = self._confidence.logq(length + len(logq))
            total += step
            if total < LEAST_LOGQ:
                break
            logq.append(step)
        return logq
