"""The CPU source: the draft model on its own plane, run by its own thread.

One step is one forward pass: either a chunk of tokens that a sequence is behind with (which goes into its
plane), or the likeliest leaf of every sequence that is up to date. Between steps the newest states are
taken, so the drafter is never more than a step behind and skips what was decided meanwhile. It runs ahead:
it does not wait for the verdict on what it has proposed, and what survives the verdict keeps its K/V. When
many sequences want drafts they take turns: who has few nodes ahead comes first, severe ones come more often.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import structlog
from numpy.typing import NDArray

from services.draft.children import Children, drawn, likeliest
from services.draft.mailbox import Item
from services.draft.plant import Plant
from services.draft.sequences import DraftSequence, Leaf, turn
from shared.bus.messages.sequences import Draw, PlaneFilled, Proposal, SeqAppend, SeqClose, SeqOpen, SeqState
from shared.config.settings import KvFormat
from shared.kv import DRAFT_PLANE
from shared.native import KvPool, Model, Scratch
from shared.tree import Survival

CHUNK = 32  # tokens of a catch-up step: short, because news waits for its end
FLOOR = math.log(0.05)  # a path less likely than this is not drafted further
MOST_LEAVES = 4  # of a step: so many rows cost little more than one
_PROPOSAL_NODES = 32
_NEWS = 0.2  # weight of the latest step in the moving average of how long steps take

_log = structlog.get_logger()


@dataclass(frozen=True)
class Outbox:
    """How drafts and news of the plane leave this thread.

    `writing(seq)` guards a write to the pool: it yields False when the sequence's blocks are given back.
    """

    propose: Callable[[Proposal], None]
    filled: Callable[[PlaneFilled], None]
    writing: Callable[[int], AbstractContextManager[bool]]


class CpuDrafter:
    """Drafts for all sequences. `depth`: computed tokens ahead of the last known one, per sequence.

    `kv` is the format of the pool; what `plant` has said before orders the branches.
    """

    def __init__(
        self,
        model: Model,
        depth: int,
        max_sequences: int,
        outbox: Outbox,
        kv: KvFormat = "f16",
        plant: Plant | None = None,
    ) -> None:
        self._plant = plant
        self._depth = depth
        self._outbox = outbox
        self._scratch = Scratch(model, CHUNK + max_sequences * (2 * depth + 2), MOST_LEAVES, kv)
        self._pool: KvPool | None = None
        self._sequences: dict[int, DraftSequence] = {}
        self._chunk_next = False
        self._random = random.Random()  # nobody's seed: acceptance must know nothing of what is drawn
        self._step_s: float | None = None  # what a step with leaves takes, moving average
        self.drafted = 0  # nodes computed since start
        self.survival = Survival()

    # --- news ---

    def take(self, items: list[Item]) -> None:
        """Bring every sequence to its newest state."""
        states: dict[int, list[SeqState | SeqAppend]] = {}
        for item in items:
            match item:
                case KvPool():
                    self._attach(item)
                case SeqOpen():
                    self._open(item)
                case SeqClose():
                    self._close(item.seq)
                case SeqState() | SeqAppend():
                    states.setdefault(item.seq, []).append(item)
        for seq, news in states.items():
            if seq in self._sequences:
                self._guard(self._sequences[seq], partial(self._follow, states=news))

    def _attach(self, pool: KvPool) -> None:
        self._scratch.clear()
        self._sequences.clear()
        self._pool = pool

    def _open(self, snapshot: SeqOpen) -> None:
        self._close(snapshot.seq)
        if self._pool is None:
            return
        try:
            self._sequences[snapshot.seq] = DraftSequence(snapshot, self._pool, DRAFT_PLANE, self._plant)
        except (ValueError, TypeError) as error:
            _log.error("sequence not drafted", seq=snapshot.seq, reason=str(error))

    def _close(self, seq: int) -> None:
        sequence = self._sequences.pop(seq, None)
        if sequence is not None:
            self._remap(self._scratch.drop(sequence.view))

    def _follow(self, sequence: DraftSequence, states: list[SeqState | SeqAppend]) -> None:
        new = sequence.follow(states)
        if new is None:
            raise ValueError("a state is missing")
        if not new or not sequence.answers:
            return
        refuted, nodes = sequence.trie.refuted_by(new), sequence.ahead
        path, survives = sequence.walk(new)
        if refuted and nodes:
            used = len(path) - (not survives) if path else 0
            self.survival.add(nodes, used, sequence.ahead)
        if not path:
            return
        slots = np.array(path, np.int32)
        if self._commit(sequence, slots):
            scratch, view = self._scratch, sequence.view
            self._remap(scratch.reroot(view, slots) if survives else scratch.drop(view))

    # --- work ---

    def step(self) -> bool:
        """One forward pass; False when there is nothing to do."""
        late = self._late()
        leaves = self._leaves()
        if late and (self._chunk_next or not leaves):
            self._chunk_next = False
            self._guard(min(late, key=lambda s: (not s.answers, -s.severity, s.seq)), self._catch_up)
        elif leaves:
            self._chunk_next = True
            self._draft(leaves)
        return bool(late or leaves)

    def _late(self) -> list[DraftSequence]:
        return [s for s in self._sequences.values() if s.behind > 0 and s.room > 0]

    def _leaves(self) -> list[tuple[DraftSequence, Leaf]]:
        current = [s for s in self._sequences.values() if s.answers and s.behind == 0]
        if len(current) > MOST_LEAVES:
            current.sort(key=turn)
        leaves = ((s, s.leaf(self._depth, FLOOR)) for s in current)
        return list(islice(((s, leaf) for s, leaf in leaves if leaf is not None), MOST_LEAVES))

    def _catch_up(self, sequence: DraftSequence) -> None:
        n = min(CHUNK, sequence.behind, sequence.room)
        tokens = np.array(sequence.next_tokens(n), np.int32)
        self._make_room(n)
        first = self._forward([sequence], np.zeros(n, np.int32), tokens, None, np.zeros(0, np.int32))
        self._commit(sequence, np.arange(first, first + n, dtype=np.int32))
        sequence.forget_computed()
        self._remap(self._scratch.drop(sequence.view))

    def _draft(self, leaves: list[tuple[DraftSequence, Leaf]]) -> None:
        if self._make_room(len(leaves)):
            leaves = self._leaves()
        n = len(leaves)
        indices = np.arange(n, dtype=np.int32)
        tokens = np.array([leaf.token for _, leaf in leaves], np.int32)
        parents = np.array([leaf.parent for _, leaf in leaves], np.int32)
        began = time.monotonic()
        first = self._forward([s for s, _ in leaves], indices, tokens, parents, indices)
        self._took(time.monotonic() - began)
        logits = self._scratch.logits()
        for i, (sequence, leaf) in enumerate(leaves):
            sequence.computed(leaf, first + i)
            self.drafted += 1
            sequence.grow(leaf, self._children(sequence, leaf, logits[i]))
            self._propose(sequence)

    def _took(self, seconds: float) -> None:
        if self._step_s is None:
            self._step_s = seconds
        self._step_s += _NEWS * (seconds - self._step_s)

    def _children(self, sequence: DraftSequence, leaf: Leaf, logits: NDArray[np.float32]) -> Children:
        """What follows a leaf: drawn when that is accepted more often, else the likeliest."""
        if not sequence.sampled:
            return likeliest(logits, sequence.prior(leaf))
        return drawn(logits, sequence.history.behind(leaf.path), sequence.sampling, self._random.random)

    def _forward(
        self,
        sequences: list[DraftSequence],
        seq: NDArray[np.int32],
        tokens: NDArray[np.int32],
        parents: NDArray[np.int32] | None,
        outputs: NDArray[np.int32],
    ) -> int:
        """First new slot. `parents` None: a chain on the committed context."""
        if parents is None:
            begin = self._scratch.size
            parents = np.arange(begin - 1, begin + len(tokens) - 1, dtype=np.int32)
            parents[0] = -1
        return self._scratch.forward([s.view for s in sequences], seq, tokens, parents, outputs)

    def _make_room(self, n: int) -> bool:
        """Empty a scratch that cannot take n more nodes (leftovers of rejected branches fill it)."""
        if self._scratch.size + n <= self._scratch.capacity:
            return False
        self._scratch.clear()
        for sequence in self._sequences.values():
            sequence.forget()
        return True

    def _remap(self, slots: NDArray[np.int32]) -> None:
        table = slots.tolist()
        for sequence in self._sequences.values():
            sequence.remap(table)

    def _guard(self, sequence: DraftSequence, action: Callable[[DraftSequence], None]) -> None:
        """A sequence that cannot go on is left alone until its next snapshot."""
        try:
            action(sequence)
        except (ValueError, RuntimeError) as error:
            _log.error("sequence not drafted", seq=sequence.seq, reason=str(error))
            self._close(sequence.seq)

    def _commit(self, sequence: DraftSequence, path: NDArray[np.int32]) -> bool:
        """Put a path into the plane; False when the sequence was closed meanwhile."""
        with self._outbox.writing(sequence.seq) as allowed:
            if not allowed:
                return False
            self._scratch.commit(sequence.view, path)
        self._outbox.filled(PlaneFilled(seq=sequence.seq, kv_len=sequence.view.length))
        return True

    def _propose(self, sequence: DraftSequence) -> None:
        """What is drafted, and what will be known next: the leaf that the next step finds if nothing changes.

        A chunk comes first when a sequence is behind: then nothing is promised.
        """
        best = sequence.trie.best(_PROPOSAL_NODES)
        leaf = sequence.leaf(self._depth, FLOOR) if not self._late() else None
        self._outbox.propose(
            Proposal(
                seq=sequence.seq,
                base=sequence.trie.base,
                tokens=best.tokens,
                parents=best.parents,
                sources=[node.source for node in best.nodes],
                logq=[node.logq for node in best.nodes],
                draws=[
                    Draw(parent=parent, children=children, ids=found.ids, probs=found.probs)
                    for parent, children, found in sequence.trie.draws(best)
                ],
                next=list(leaf.path) if leaf is not None else None,
                due=time.monotonic() + (self._step_s or 0.0),
            )
        )
