"""Composing a pass and deferral: pure logic of the verifier."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.verifier.batch import Arrays, Limits, compose
from services.verifier.deferral import SILENCE_S, Deferral, Patience
from shared.tree import Selection, TokenTrie


@dataclass
class Fake:
    """A sequence as composing sees it."""

    seq: int
    tokens: list[int]
    room: int = 100
    answer_left: int = 50
    severity: int = 1
    last_pass: int = 0
    trie: TokenTrie = field(default_factory=lambda: TokenTrie(1))

    @property
    def pending(self) -> int:
        return len(self.tokens)

    @property
    def decoding(self) -> bool:
        return len(self.tokens) == 1 and self.answer_left > 0

    def pending_tokens(self, n: int) -> NDArray[np.int32]:
        return np.array(self.tokens[:n], np.int32)


@st.composite
def fakes(draw: st.DrawFn) -> list[Fake]:
    found = []
    for seq in range(1, draw(st.integers(0, 9)) + 1):
        fake = Fake(
            seq,
            draw(st.lists(st.integers(0, 99), min_size=1, max_size=draw(st.sampled_from([1, 1, 30])))),
            room=draw(st.integers(0, 40)),
            answer_left=draw(st.integers(0, 20)),
            severity=draw(st.integers(0, 3)),
            last_pass=draw(st.integers(0, 5)),
        )
        for _ in range(draw(st.integers(0, 3))):
            path = draw(st.lists(st.integers(0, 9), min_size=1, max_size=8))
            fake.trie.insert_path(1, path, 0, [draw(st.sampled_from([0.0, -0.2, -1.0]))] * len(path))
        found.append(fake)
    return found


limits_ = st.builds(
    Limits, st.integers(0, 8), st.integers(1, 20), st.integers(1, 16), st.sampled_from([-math.inf, -1.0])
)


@given(fakes(), limits_)
def test_a_pass_keeps_to_its_budgets_and_reaches_no_block_that_is_not_there(
    ready: list[Fake], limits: Limits
) -> None:
    plan = compose(ready, limits)
    assert len(plan.trees) + sum(len(t.drafts) for t in plan.trees) <= limits.pass_nodes
    able = [s for s in ready if s.decoding and s.room > 0]
    assert len(plan.trees) == min(len(able), limits.pass_nodes)
    for tree in plan.trees:
        depths: list[int] = []
        for parent in tree.drafts.parents:
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        assert len(depths) <= limits.node_budget
        assert max(depths, default=0) <= min(tree.sequence.room, tree.sequence.answer_left) - 1
        assert all(score >= limits.min_score for score in tree.drafts.scores)
    if plan.chunk is not None:
        assert 1 <= plan.chunk.length <= min(limits.prefill_chunk, plan.chunk.sequence.room)
        assert not plan.chunk.sequence.decoding
        waiting = [s for s in ready if not s.decoding and s.room > 0]
        assert plan.chunk.sequence.severity == max(s.severity for s in waiting)


@given(fakes(), limits_)
def test_the_arrays_of_a_pass_are_the_plan(ready: list[Fake], limits: Limits) -> None:
    plan = compose(ready, limits)
    arrays = Arrays(limits)
    arrays.fill(plan)
    members = ([plan.chunk.sequence] if plan.chunk else []) + [t.sequence for t in plan.trees]
    expected: list[tuple[int, int, int]] = []
    outputs: list[int] = []
    if plan.chunk:
        expected += [
            (plan.chunk.sequence.seq, t, i - 1)
            for i, t in enumerate(plan.chunk.sequence.tokens[: plan.chunk.length])
        ]
        if plan.chunk.last and plan.chunk.sequence.answer_left:
            outputs.append(len(expected) - 1)
    for tree in plan.trees:
        root = len(expected)
        expected.append((tree.sequence.seq, tree.sequence.tokens[0], -1))
        pairs = zip(tree.drafts.tokens, tree.drafts.parents, strict=True)
        expected += [(tree.sequence.seq, t, root + 1 + p) for t, p in pairs]
        outputs += range(root, len(expected))
    seqs = [members[i].seq for i in arrays.seq]
    assert list(zip(seqs, arrays.tokens.tolist(), arrays.parents.tolist(), strict=True)) == expected
    assert arrays.outputs.tolist() == outputs
    assert all(p < i for i, p in enumerate(arrays.parents.tolist()))


def test_the_best_drafts_of_all_sequences_share_a_full_pass() -> None:
    sure, unsure = Fake(1, [5]), Fake(2, [6])
    sure.trie.insert_path(1, [1, 2, 3], 0, [-0.01] * 3)
    unsure.trie.insert_path(1, [1, 2, 3], 0, [-0.5] * 3)
    plan = compose([unsure, sure], Limits(7, 5, 16, -math.inf))
    assert {t.sequence.seq: len(t.drafts) for t in plan.trees} == {1: 3, 2: 0}


def test_with_more_sequences_than_nodes_all_take_turns() -> None:
    ready = [Fake(i, [1]) for i in range(1, 6)]
    served: list[set[int]] = []
    for number in range(1, 20):
        trees = compose(ready, Limits(7, 2, 16)).trees
        for tree in trees:
            tree.sequence.last_pass = number
        served.append({tree.sequence.seq for tree in trees})
    for three in zip(served, served[1:], served[2:], strict=False):
        assert set().union(*three) == {1, 2, 3, 4, 5}


@dataclass
class Waiting:
    ready_at: float = 10.0
    proposed_at: float | None = None
    patience: Patience = field(default_factory=Patience)


def drafts(n: int, last: int = 1) -> Selection:
    trie = TokenTrie(1)
    trie.insert_path(1, [1] * (n - 1) + [last] if n else [], 0, [0.0] * n)
    return trie.best(n)


def deferral(heard: float = 10.0) -> Deferral:
    made = Deferral(node_budget=4, max_wait_s=0.002, boundaries=[99])
    made.heard(heard)
    made.ran(0.025)
    return made


def test_nobody_is_waited_for_when_no_drafter_was_ever_heard() -> None:
    quiet = Deferral(4, 0.002)
    quiet.ran(0.025)
    assert quiet.wait_s(10.0, [(Waiting(), drafts(0))], prefill=False) == 0.0


def test_nobody_is_waited_for_when_the_drafter_has_fallen_silent() -> None:
    assert (
        deferral().wait_s(10.1 + SILENCE_S, [(Waiting(ready_at=10.1 + SILENCE_S), drafts(0))], False) == 0.0
    )


def test_a_sequence_without_drafts_waits_its_limit_from_when_it_was_ready() -> None:
    assert deferral().wait_s(10.0005, [(Waiting(), drafts(0))], False) == pytest.approx(0.0015)
    assert deferral().wait_s(10.0030, [(Waiting(), drafts(0))], False) == 0.0


def test_the_oldest_proposal_starts_the_clock() -> None:
    waiting = Waiting(proposed_at=10.001)
    assert deferral().wait_s(10.0015, [(waiting, drafts(2))], False) == pytest.approx(0.0015)


@pytest.mark.parametrize(
    ("selection", "prefill"), [(drafts(4), False), (drafts(2, last=99), False), (drafts(0), True)]
)
def test_a_full_budget_a_phrase_boundary_or_a_prefill_starts_the_pass(
    selection: Selection, prefill: bool
) -> None:
    assert deferral().wait_s(10.0, [(Waiting(), selection)], prefill) == 0.0


def test_waits_that_bring_nothing_end_soon_and_late_hits_bring_them_back() -> None:
    waiting = Waiting()
    waits = 0
    while deferral().wait_s(10.0, [(waiting, drafts(0))], False) > 0:
        waits += 1
        waiting.patience.learn(drafts=False, waited=True, late=0)
    assert waits <= 5
    waiting.patience.learn(drafts=False, waited=False, late=3)
    assert deferral().wait_s(10.0, [(waiting, drafts(0))], False) > 0
    assert waiting.patience.gain(True) == 1.0, "waits with drafts at hand are another matter"


def test_one_sequence_that_does_not_wait_starts_the_pass_for_all() -> None:
    done = Waiting()
    for _ in range(10):
        done.patience.learn(drafts=False, waited=True, late=0)
    ready = [(Waiting(), drafts(0)), (done, drafts(0))]
    assert deferral().wait_s(10.0, ready, False) == 0.0
