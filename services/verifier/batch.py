"""Composes a pass: one prefill chunk of one sequence, and a root with its best drafts for every other one.

    node      0 … c-1            c        c+1 … c+a     c+a+1   …
              prefill chain      root A   drafts of A   root B  drafts of B
    parent    -1, 0, 1 …         -1       root or node  -1      …
    output    last, if it ends   every node of every tree

The scratch is cleared before every pass, so a node's index in the pass is its slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from services.verifier.budget import Offer, Spread
from shared.config.settings import Verifier
from shared.tree import Selection


class Candidate(Offer, Protocol):
    """What composing needs to know of a sequence."""

    @property
    def seq(self) -> int: ...
    @property
    def last_pass(self) -> int:
        """Number of the latest pass it took part in."""

    @property
    def decoding(self) -> bool:
        """Only its root is to be computed."""

    @property
    def pending(self) -> int:
        """Known tokens that are not computed yet."""

    def pending_tokens(self, n: int) -> NDArray[np.int32]:
        """The first n of the pending tokens."""


class Spreading(Protocol):
    """Chooses the drafts of a pass (services.verifier.budget)."""

    def spread(self, offers: Sequence[Offer], each: int, nodes: int, chunk: int) -> Spread: ...


C = TypeVar("C", bound=Candidate)


@dataclass(frozen=True, slots=True)
class Limits:
    node_budget: int  # draft nodes of one sequence
    pass_nodes: int  # tree nodes of all sequences, roots included
    prefill_chunk: int

    @staticmethod
    def of(settings: Verifier) -> Limits:
        return Limits(settings.node_budget, settings.pass_nodes, settings.prefill_chunk)

    @property
    def nodes(self) -> int:
        return self.prefill_chunk + self.pass_nodes

    @property
    def outputs(self) -> int:
        return 1 + self.pass_nodes


@dataclass(slots=True)
class Chunk(Generic[C]):
    """The next `length` pending tokens of a sequence; `last`: it ends its prefill."""

    sequence: C
    length: int
    last: bool


@dataclass(slots=True)
class Tree(Generic[C]):
    sequence: C
    drafts: Selection


@dataclass(slots=True)
class Plan(Generic[C]):
    """`tokens` are what its trees are expected to bring, `cost` what it is expected to take (one row: 1)."""

    chunk: Chunk[C] | None = None
    trees: list[Tree[C]] = field(default_factory=list)
    tokens: float = 0.0
    cost: float = 0.0

    @property
    def rows(self) -> int:
        """Tree nodes, roots included."""
        return len(self.trees) + sum(len(tree.drafts) for tree in self.trees)

    @property
    def attended(self) -> int:
        """Visible positions of every tree node, summed."""
        return sum((1 + len(tree.drafts)) * tree.sequence.visible for tree in self.trees)


def compose(ready: Sequence[C], limits: Limits, budget: Spreading) -> Plan[C]:
    """The pass over the sequences that can go on; empty when none has a block for its next position."""
    able = [s for s in ready if s.room > 0]
    plan: Plan[C] = Plan()
    prefilling = [s for s in able if not s.decoding and s.pending > 0]
    if prefilling:
        # Streams and prefixes have no answer that somebody waits for.
        first = min(prefilling, key=lambda s: (-s.severity, s.answer_left == 0, s.seq))
        length = min(limits.prefill_chunk, first.pending, first.room)
        plan.chunk = Chunk(first, length, length == first.pending)
    decoding = [s for s in able if s.decoding]
    if len(decoding) > limits.pass_nodes:
        decoding = sorted(decoding, key=lambda s: s.last_pass)[: limits.pass_nodes]
    free = limits.pass_nodes - len(decoding)
    spread = budget.spread(decoding, limits.node_budget, free, plan.chunk.length if plan.chunk else 0)
    plan.trees = [Tree(s, drafts) for s, drafts in zip(decoding, spread.drafts, strict=True)]
    plan.tokens, plan.cost = spread.tokens, spread.cost
    return plan


class Arrays:
    """The arrays of a pass, allocated once: int32, `limits.nodes` and `limits.outputs` long."""

    def __init__(self, limits: Limits) -> None:
        self._seq = np.zeros(limits.nodes, np.int32)
        self._tokens = np.zeros(limits.nodes, np.int32)
        self._parents = np.zeros(limits.nodes, np.int32)
        self._outputs = np.zeros(limits.outputs, np.int32)
        self.n = 0
        self.n_outputs = 0

    def fill(self, plan: Plan[C]) -> None:
        """Lay out a plan; `seq` numbers the chunk's sequence first, then the trees'."""
        self.n = self.n_outputs = 0
        if plan.chunk is not None:
            self._add_chunk(plan.chunk)
        for index, tree in enumerate(plan.trees, start=int(plan.chunk is not None)):
            self._add_tree(index, tree)

    @property
    def seq(self) -> NDArray[np.int32]:
        return self._seq[: self.n]

    @property
    def tokens(self) -> NDArray[np.int32]:
        return self._tokens[: self.n]

    @property
    def parents(self) -> NDArray[np.int32]:
        return self._parents[: self.n]

    @property
    def outputs(self) -> NDArray[np.int32]:
        return self._outputs[: self.n_outputs]

    def _add_chunk(self, chunk: Chunk[C]) -> None:
        n = self.n = chunk.length
        self._seq[:n] = 0
        self._tokens[:n] = chunk.sequence.pending_tokens(n)
        self._parents[:n] = np.arange(-1, n - 1)
        if chunk.last and chunk.sequence.answer_left > 0:
            self._outputs[0] = n - 1
            self.n_outputs = 1

    def _add_tree(self, index: int, tree: Tree[C]) -> None:
        root, count = self.n, 1 + len(tree.drafts)
        end = root + count
        self._seq[root:end] = index
        self._tokens[root] = tree.sequence.pending_tokens(1)[0]
        self._parents[root] = -1
        if count > 1:
            self._tokens[root + 1 : end] = tree.drafts.tokens
            self._parents[root + 1 : end] = tree.drafts.parents
            self._parents[root + 1 : end] += root + 1
        self._outputs[self.n_outputs : self.n_outputs + count] = np.arange(root, end)
        self.n = end
        self.n_outputs += count
