"""Drafts that were sampled: what `ratio` has to know of them.

A drafter may draw some of a node's children from its distribution q, without replacement. Acceptance is exact
when each is tried with the distribution it has *given all that decided which nodes are in the tree*:

- Which nodes are kept, computed and verified is decided by score. So the score of a drawn child must not
  depend on which token was drawn: it is the logarithm of how probably such a draw is accepted.
- Whether a drawn token coincides with one that was proposed for other reasons shows in the tree: the two are
  one node. Such a node counts as proposed, its q is 1 at itself. A drawn child that is no such node was drawn
  from q without the proposed ones, which is what is left of q when it is known that they did not come.
- It was drawn without replacement: q without those drawn before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from shared.sampling import Distribution

Try: TypeAlias = tuple[int, Distribution | None]  # a child's token, the q it was drawn from (None: proposed)


class Draws(Protocol):
    """Children of one node (index, -1: the root) that were drawn from `ids` with `probs`, in their order."""

    @property
    def parent(self) -> int: ...
    @property
    def children(self) -> Sequence[int]: ...
    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def probs(self) -> Sequence[float]: ...


@dataclass(slots=True)
class Drawn:
    """What was drawn at a node. There is one drawing at a node: of two that differ it could not be said what
    one tells about the other, so the first one counts."""

    ids: list[int]
    probs: list[float]
    tokens: list[int]

    def takes(self, other: Drawn) -> bool:
        """Whether `other` are the same draws, perhaps more of them, which are added then."""
        common = min(len(other.tokens), len(self.tokens))
        same = self.ids == other.ids and self.probs == other.probs
        if not same or self.tokens[:common] != other.tokens[:common]:
            return False
        self.tokens += other.tokens[common:]
        return True

    def conditional(self, proposed: set[int]) -> list[Try]:
        """The tokens that were not proposed, in order, each with the distribution it was drawn from."""
        q = Distribution(np.array(self.probs), np.array(self.ids, np.int64)).without(proposed)
        found: list[Try] = []
        for token in self.tokens:
            if token not in proposed:
                found.append((token, q))
                q = q.without([token])
        return found


class Holder(Protocol):
    """A node that draws are attached to."""

    drawn: Drawn | None


class Drawings:
    """The draws of a tree that is being inserted. ValueError when they do not fit the tree."""

    __slots__ = ("_agreed", "_by_child")

    def __init__(self, tokens: Sequence[int], parents: Sequence[int], draws: Sequence[Draws]) -> None:
        self._by_child: dict[int, tuple[int, Drawn]] = {}
        self._agreed: dict[int, bool] = {}
        for number, draw in enumerate(draws):
            drawn = _checked(tokens, parents, draw)
            for child in draw.children:
                if child in self._by_child:
                    raise ValueError(f"node {child} of a tree is drawn twice")
                self._by_child[child] = number, drawn

    def holds(self, child: int) -> bool:
        return child in self._by_child

    def agree(self, child: int, parent: Holder) -> bool:
        """Whether a child can be added to `parent`: it was not drawn, or the node's draws are the same."""
        if child not in self._by_child:
            return True
        number, drawn = self._by_child[child]
        if number not in self._agreed:
            if parent.drawn is None:
                parent.drawn = drawn
            self._agreed[number] = parent.drawn is drawn or parent.drawn.takes(drawn)
        return self._agreed[number]


def _checked(tokens: Sequence[int], parents: Sequence[int], draw: Draws) -> Drawn:
    if not all(0 <= child < len(tokens) and parents[child] == draw.parent for child in draw.children):
        raise ValueError(f"what was drawn at node {draw.parent} of a tree is not behind it")
    drawn = Drawn(list(draw.ids), list(draw.probs), [tokens[child] for child in draw.children])
    q = dict(zip(draw.ids, draw.probs, strict=False))
    if not len(q) == len(draw.ids) == len(draw.probs):
        raise ValueError(f"{len(draw.ids)} tokens, {len(q)} different, with {len(draw.probs)} weights")
    if not all(0 < p <= 1 for p in draw.probs):  # NaN is not
        raise ValueError("a probability is not above 0 and at most 1")
    if len(set(drawn.tokens)) != len(drawn.tokens) or not q.keys() >= set(drawn.tokens):
        raise ValueError(f"what was drawn at node {draw.parent} of a tree cannot come from its distribution")
    return drawn
