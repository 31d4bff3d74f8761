"""How often drafted tokens are right, by who drafted them, how deep, and how sure their drafter was.

A drafter's probabilities are taken as claims. Every child of a node on the accepted path is a trial of its
class, whether it was verified or not, because the target has chosen what follows that node. Classes with few
trials lean on the source's trials at every depth, and these on what was claimed.

    claim ──8 trials──▶ (source, claim) ──8 trials──▶ (source, depth, claim)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from shared.tree import Node, TokenTrie

_CLAIMS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)  # upper ends of the classes
_CENTRES = (0.01, 0.03, 0.07, 0.15, 0.27, 0.42, 0.57, 0.72, 0.85, 0.93, 0.975, 0.995)
_EDGES = tuple(math.log(claim) for claim in _CLAIMS)
_DEPTHS = (1, 2, 4)  # last depths of the classes; deeper nodes are one more
_SOURCES = 16
_LEAN = 8.0  # trials that the wider class counts for
_FORGET = 512.0  # trials after which old ones count half
_LEAST, _MOST = 0.002, 0.995


class _Counts:
    """Trials and hits of one class, old ones fading."""

    __slots__ = ("hits", "trials")

    def __init__(self) -> None:
        self.trials = 0.0
        self.hits = 0.0

    def add(self, hit: bool) -> None:
        self.trials += 1.0
        self.hits += hit
        if self.trials > _FORGET:
            self.trials /= 2
            self.hits /= 2

    def rate(self, lean: float) -> float:
        return (self.hits + _LEAN * lean) / (self.trials + _LEAN)


class Calibration:
    """Tables of a fixed size, for all sequences together."""

    def __init__(self) -> None:
        claims, depths = range(len(_CENTRES)), range(len(_DEPTHS) + 1)
        kinds = range(2 * _SOURCES)
        self._wide = [[_Counts() for _ in claims] for _ in kinds]
        self._narrow = [[[_Counts() for _ in claims] for _ in depths] for _ in kinds]
        self._logs = [[[math.log(centre) for centre in _CENTRES] for _ in depths] for _ in kinds]

    def weigh(self, node: Node, depth: int) -> float:
        """Natural log of the probability that a node is right if its parent is; `depth` 1: a root's child."""
        return self._logs[_kind(node)][bisect_right(_DEPTHS, depth - 1)][bisect_right(_EDGES, node.logq)]

    def learn(self, trie: TokenTrie, tokens: Sequence[int]) -> None:
        """The target has said `tokens` after the trie's root."""
        node: Node | None = trie.root
        for depth, token in enumerate(tokens, start=1):
            if node is None:
                return
            for child in node.children.values():
                self._try(child, depth, child.token == token)
            node = node.children.get(token)

    def _try(self, node: Node, depth: int, hit: bool) -> None:
        kind, d = _kind(node), bisect_right(_DEPTHS, depth - 1)
        claim = bisect_right(_EDGES, node.logq)
        self._wide[kind][claim].add(hit)
        self._narrow[kind][d][claim].add(hit)
        lean = self._wide[kind][claim].rate(_CENTRES[claim])
        for narrow, logs in zip(self._narrow[kind], self._logs[kind], strict=True):
            logs[claim] = math.log(min(max(narrow[claim].rate(lean), _LEAST), _MOST))


def _kind(node: Node) -> int:
    """Its source; what several sources propose is a kind of its own."""
    return node.source + _SOURCES if node.votes & (node.votes - 1) else node.source
