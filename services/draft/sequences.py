"""What the model's thread knows of a sequence: its tokens, its plane in the pool, its tree in the scratch.

tokens   0 ……… view.length …………… root        trie
         in the plane │  behind      │ ──┬── computed (tag = scratch slot) ── leaf (tag = -1)
                                         └── leaf

Kept are the tokens from `first` on: those that were not in the plane when the snapshot came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from services.draft.children import Children
from services.draft.plant import Plant
from services.draft.prior import BranchPrior, Prior
from shared.bus.messages.sequences import SeqAppend, SeqOpen, SeqState, Source
from shared.native import KvPool, SequenceView
from shared.sampling import History
from shared.tree import Node, TokenTrie

NOT_COMPUTED = -1
MOST_BEHIND = 1 << 16  # tokens of a stream that are kept to be computed; then it is given up


@dataclass(frozen=True, slots=True)
class Leaf:
    """The next node to compute: the root (node None, parent slot -1) or a drafted token."""

    token: int
    parent: int  # scratch slot
    node: Node | None
    path: tuple[int, ...] = ()  # drafted tokens from the root to it


class Waiting(Protocol):
    """A sequence that wants drafts."""

    @property
    def seq(self) -> int: ...
    @property
    def severity(self) -> int: ...
    @property
    def ahead(self) -> int:
        """Drafted tokens that are computed."""


def turn(sequence: Waiting) -> tuple[float, int, int]:
    """Sort key of whose turn it is: few nodes ahead first, severe ones counted as if they had fewer."""
    return sequence.ahead / (1 + sequence.severity), -sequence.severity, sequence.seq


class DraftSequence:
    def __init__(self, snapshot: SeqOpen, pool: KvPool, plane: int, plant: Plant | None = None) -> None:
        """ValueError when the snapshot names blocks that the pool does not have."""
        self.seq = snapshot.seq
        self.epoch = snapshot.epoch
        self.severity = snapshot.severity
        if snapshot.draft_kv_len < snapshot.first:
            raise ValueError(f"what follows position {snapshot.draft_kv_len} is forgotten")
        last = snapshot.first + len(snapshot.tokens) - 1
        self.first = max(snapshot.first, min(snapshot.draft_kv_len, last))
        self.tokens = snapshot.tokens[self.first - snapshot.first :]
        self.answers = snapshot.max_tokens > 0
        self._answer_end = snapshot.prompt_len + snapshot.max_tokens
        self._stop = frozenset(snapshot.stop_tokens)
        self.sampling = snapshot.sampling
        self.history = History(snapshot.tokens, snapshot.window, snapshot.sampling)
        self.view = SequenceView(pool, plane, snapshot.sink, snapshot.ring, snapshot.window)
        self.view.set_blocks(0, np.array(snapshot.blocks, np.int32))
        self.view.length = snapshot.draft_kv_len
        self.trie = TokenTrie(self.known)
        self.root_slot = NOT_COMPUTED
        self._prior = BranchPrior(snapshot, plant) if plant is not None and self.answers else None

    @property
    def sampled(self) -> bool:
        """Draws are accepted more often than guesses."""
        return self.sampling.acceptance == "ratio" and self.sampling.temperature > 0

    @property
    def known(self) -> int:
        return self.first + len(self.tokens)

    @property
    def behind(self) -> int:
        """Tokens to compute before drafting can begin: all but the root, all when nothing is drafted."""
        return self.known - int(self.answers) - self.view.length

    @property
    def ahead(self) -> int:
        """Drafted tokens that are computed."""
        return sum(node.tag != NOT_COMPUTED for node in self.trie.nodes())

    @property
    def room(self) -> int:
        return self.view.covered() - self.view.length

    def follow(self, news: list[SeqState | SeqAppend]) -> list[int] | None:
        """Take news in order; the new tokens, or None when something is missing."""
        new: list[int] = []
        for state in news:
            if isinstance(state, SeqState):
                if state.epoch != self.epoch + 1:
                    return None
                self.epoch = state.epoch
            elif state.known != self.known + len(new):
                return None
            self.view.set_blocks(state.first_block, np.array(state.blocks, np.int32))
            new += state.tokens
        self.tokens += new
        self.history.extend(new)
        if self._prior is not None:
            self._prior.advance(new)
        if len(self.tokens) > MOST_BEHIND and not self.answers:
            raise ValueError(f"a stream is {len(self.tokens)} tokens ahead")
        return new

    def next_tokens(self, n: int) -> list[int]:
        """The first n that are not in the plane."""
        begin = self.view.length - self.first
        return self.tokens[begin : begin + n]

    def forget_computed(self) -> None:
        """Of a stream only what is still to be computed is kept."""
        if not self.answers:
            self.tokens = self.tokens[self.view.length - self.first :]
            self.first = self.view.length

    def walk(self, new: list[int]) -> tuple[list[int], bool]:
        """Move the trie behind the new tokens.

        Returns the scratch slots of the old root and of the tokens that were drafted and computed up to the
        new root, whose K/V can be committed, and whether the new root is computed too (`root_slot` is its
        slot then).
        """
        walked = self.trie.advance(new)
        if self.root_slot == NOT_COMPUTED:
            return [], False
        slots = [self.root_slot]
        for node in walked:
            if node.tag == NOT_COMPUTED:
                break
            slots.append(node.tag)
        survives = len(slots) == len(new) + 1
        self.root_slot = slots[-1] if survives else NOT_COMPUTED
        if not survives:
            self.forget()
        return slots[: len(new)], survives

    def leaf(self, depth: int, floor: float) -> Leaf | None:
        """The likeliest token to compute next, None when the tree is deep enough or unlikely further on."""
        levels = min(depth, self._answer_end - self.known) - 1
        if levels < 0:
            return None
        if self.root_slot == NOT_COMPUTED:
            return Leaf(self.tokens[-1], -1, None)
        best = self.trie.best(4 * depth, levels, floor)
        computed = sum(node.tag != NOT_COMPUTED for node in best.nodes)
        if computed >= levels:
            return None
        for i, (node, parent) in enumerate(zip(best.nodes, best.parents, strict=True)):
            if node.tag == NOT_COMPUTED and node.token not in self._stop:
                slot = self.root_slot if parent < 0 else best.nodes[parent].tag
                return Leaf(node.token, slot, node, best.path(i))
        return None

    def prior(self, leaf: Leaf) -> Prior | None:
        """What the plant's texts say about what follows a leaf."""
        return self._prior.behind(leaf.path) if self._prior is not None else None

    def computed(self, leaf: Leaf, slot: int) -> None:
        if leaf.node is None:
            self.root_slot = slot
        else:
            leaf.node.tag = slot

    def grow(self, leaf: Leaf, children: Children) -> None:
        """Add what the model says follows a leaf."""
        parent = leaf.node or self.trie.root
        self.trie.add_children(parent, children.tokens, Source.CPU, children.logq, children.drawn)

    def remap(self, slots: list[int]) -> None:
        """The scratch was compacted: old slot -> new slot, -1 for what is gone."""
        if self.root_slot != NOT_COMPUTED:
            self.root_slot = slots[self.root_slot]
        for node in self.trie.nodes():
            if node.tag != NOT_COMPUTED:
                node.tag = slots[node.tag]

    def forget(self) -> None:
        """Nothing of it is in the scratch any more; what was drafted stays as leaves."""
        self.root_slot = NOT_COMPUTED
        for node in self.trie.nodes():
            node.tag = NOT_COMPUTED
