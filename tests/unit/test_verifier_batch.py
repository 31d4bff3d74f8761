"""Composing a pass and deferral: pure logic of the verifier."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.verifier.batch import Arrays, Limits, compose
from services.verifier.budget import Budget
from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from services.verifier.deferral import HOPE, SILENCE_S, Deferral, For, Patience, Pause, Wait
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
    visible: int = 0
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


limits_ = st.builds(Limits, st.integers(0, 8), st.integers(1, 20), st.integers(1, 16))
costs = st.sampled_from([{1: 1.0, 64: 1.0}, {1: 1.0, 2: 1.1, 64: 9.0}, {1: 1.0, 64: 64.0}])


def made(cost: dict[int, float]) -> Budget:
    return Budget(PassCost(64, cost), Calibration())


FREE = made({1: 1.0, 64: 1.0})


@given(fakes(), limits_, costs)
def test_a_pass_keeps_to_its_budgets_and_reaches_no_block_that_is_not_there(
    ready: list[Fake], limits: Limits, cost: dict[int, float]
) -> None:
    plan = compose(ready, limits, made(cost))
    assert len(plan.trees) + sum(len(t.drafts) for t in plan.trees) <= limits.pass_nodes
    able = [s for s in ready if s.decoding and s.room > 0]
    assert len(plan.trees) == min(len(able), limits.pass_nodes)
    for tree in plan.trees:
        depths: list[int] = []
        for parent in tree.drafts.parents:
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        assert len(depths) <= limits.node_budget
        assert max(depths, default=0) <= min(tree.sequence.room, tree.sequence.answer_left) - 1
    if plan.chunk is not None:
        assert 1 <= plan.chunk.length <= min(limits.prefill_chunk, plan.chunk.sequence.room)
        assert not plan.chunk.sequence.decoding
        waiting = [s for s in ready if not s.decoding and s.room > 0]
        assert plan.chunk.sequence.severity == max(s.severity for s in waiting)


@given(fakes(), limits_)
def test_the_arrays_of_a_pass_are_the_plan(ready: list[Fake], limits: Limits) -> None:
    plan = compose(ready, limits, FREE)
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
    plan = compose([unsure, sure], Limits(7, 5, 16), FREE)
    assert {t.sequence.seq: len(t.drafts) for t in plan.trees} == {1: 3, 2: 0}


def test_with_more_sequences_than_nodes_all_take_turns() -> None:
    ready = [Fake(i, [1]) for i in range(1, 6)]
    served: list[set[int]] = []
    for number in range(1, 20):
        trees = compose(ready, Limits(7, 2, 16), FREE).trees
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
    due: float | None = None


def drafts(n: int, last: int = 1) -> Selection:
    trie = TokenTrie(1)
    trie.insert_path(1, [1] * (n - 1) + [last] if n else [], 0, [0.0] * n)
    return trie.best(n)


def wait_s(
    now: float,
    *ready: tuple[Waiting, Selection],
    prefill: bool = False,
    token_s: float = 0.025,
    heard: float = 10.0,
) -> float:
    deferral = Deferral(node_budget=4, max_wait_s=0.002, boundaries=[99])
    deferral.heard(heard)
    return seconds(deferral.pause(now, ready, prefill, token_s))


def seconds(pause: Pause | None) -> float:
    return 0.0 if pause is None else pause.seconds


def test_nobody_is_waited_for_when_no_drafter_was_ever_heard() -> None:
    assert Deferral(4, 0.002).pause(10.0, [(Waiting(), drafts(0))], False, 0.025) is None


def test_nobody_is_waited_for_when_the_drafter_has_fallen_silent() -> None:
    assert wait_s(10.1 + SILENCE_S, (Waiting(ready_at=10.1 + SILENCE_S), drafts(0))) == 0.0


def test_a_sequence_without_drafts_waits_its_limit_from_when_it_was_ready() -> None:
    assert wait_s(10.0005, (Waiting(), drafts(0))) == pytest.approx(0.0015)
    assert wait_s(10.0030, (Waiting(), drafts(0))) == 0.0


def test_the_oldest_proposal_starts_the_clock() -> None:
    assert wait_s(10.0015, (Waiting(proposed_at=10.001), drafts(2))) == pytest.approx(0.0015)


@pytest.mark.parametrize(
    ("selection", "prefill"), [(drafts(4), False), (drafts(2, last=99), False), (drafts(0), True)]
)
def test_a_full_budget_a_phrase_boundary_or_a_prefill_starts_the_pass(
    selection: Selection, prefill: bool
) -> None:
    assert wait_s(10.0, (Waiting(), selection), prefill=prefill) == 0.0


def test_a_wait_has_to_be_worth_more_than_it_takes() -> None:
    """Half a token is hoped for; where two tokens are as cheap as the wait, it is not waited for."""
    assert wait_s(10.0, (Waiting(), drafts(0)), token_s=0.0041) > 0.0
    assert wait_s(10.0, (Waiting(), drafts(0)), token_s=0.0039) == 0.0


def test_a_wait_lasts_about_as_long_as_drafters_need_and_costs_what_waits_took() -> None:
    deferral = Deferral(node_budget=4, max_wait_s=0.010)
    deferral.heard(10.0)
    nothing = [(Waiting(), drafts(0))]
    assert seconds(deferral.pause(10.0, nothing, False, 0.025)) == pytest.approx(0.010)
    for _ in range(60):
        deferral.answered(0.001)
        deferral.waited(0.0012, in_vain=False)
    assert seconds(deferral.pause(10.0, nothing, False, 0.025)) == pytest.approx(0.0025, rel=0.1)
    assert seconds(deferral.pause(10.0, nothing, False, 0.0026)) > 0.0
    assert seconds(deferral.pause(10.0, nothing, False, 0.0022)) == 0.0
    for _ in range(60):
        deferral.waited(5.0, in_vain=True)
    assert seconds(deferral.pause(10.0, nothing, False, 0.021)) > 0.0, "no wait was longer than the limit"
    assert seconds(deferral.pause(10.0, nothing, False, 0.025)) == pytest.approx(0.010), (
        "they may have become slower"
    )


def disappointed(what: For, waits: int) -> Patience:
    patience = Patience()
    for _ in range(waits):
        patience.learn(what, waited=True, late=0)
    return patience


def test_waits_that_bring_nothing_end_soon_and_hits_bring_them_back() -> None:
    patience = disappointed(For.FIRST, 40)
    assert wait_s(10.0, (Waiting(patience=patience), drafts(0))) == 0.0
    assert patience.gain(For.MORE) == HOPE, "waits with drafts at hand are another matter"
    patience.learn(For.FIRST, waited=True, late=3)
    assert wait_s(10.0, (Waiting(patience=patience), drafts(0))) > 0


def test_another_sequence_begins_with_what_was_learnt() -> None:
    patience = disappointed(For.MORE, 40)
    other = patience.copy()
    assert other.gain(For.MORE) == patience.gain(For.MORE) < 0.1
    other.learn(For.MORE, waited=True, late=4)
    assert patience.gain(For.MORE) < 0.1 < other.gain(For.MORE)


def test_waits_that_bring_nothing_become_rare_but_never_cease() -> None:
    patience = disappointed(For.FIRST, 40)
    passes = 5000
    waits = 0
    for _ in range(passes):
        waited = patience.gain(For.FIRST) == HOPE
        waits += waited
        patience.learn(For.FIRST, waited, 0)
    assert passes / 70 < waits < passes / 60


def test_a_wait_is_worth_what_it_brings_to_all_sequences() -> None:
    late = Waiting(patience=disappointed(For.FIRST, 60)), drafts(0)
    fresh = Waiting(), drafts(0)
    assert wait_s(10.0, late) == 0.0
    assert wait_s(10.0, late, fresh) == pytest.approx(0.002)
    assert wait_s(10.0, fresh, fresh, token_s=0.003) > 0.0
    assert wait_s(10.0, fresh, token_s=0.003) == 0.0


def test_a_wait_for_the_first_drafts_and_one_for_more_are_told_apart() -> None:
    """The first draft came and was right; what was waited for after that never came."""
    patience = Patience()
    for _ in range(100):
        wait, found = Wait(), drafts(1)
        wait.look(drafts(0))
        wait.go_on(drafts(0))
        wait.look(found)
        wait.go_on(found)
        wait.end(found, [0], patience)
    assert patience.gain(For.FIRST) > 0.9
    assert patience.gain(For.MORE) < 0.01


def test_drafts_that_come_while_others_are_at_hand_are_the_gain_of_that_wait() -> None:
    patience, trie = Patience(), TokenTrie(1)
    trie.insert_path(1, [1], 0, [0.0])
    wait = Wait()
    wait.look(trie.best(9))
    wait.go_on(trie.best(9))
    trie.insert_path(1, [1, 2, 3], 0, [0.0] * 3)
    wait.look(trie.best(9))
    before = patience.gain(For.FIRST), patience.gain(For.MORE)
    wait.end(trie.best(9), [0, 1, 2], patience)
    assert patience.gain(For.FIRST) == before[0]
    assert patience.gain(For.MORE) > before[1]


def test_drafts_that_are_right_now_and_then_are_waited_for_all_the_time() -> None:
    """One in five brings two tokens: far more than the wait takes."""
    patience, draw = Patience(), random.Random(4)
    waited = 0
    for _ in range(1000):
        waits = patience.gain(For.FIRST) * 0.025 > 0.0012
        waited += waits
        patience.learn(For.FIRST, waits, 2 * (draw.random() < 0.2) if waits else 0)
    assert waited > 950


def due_s(now: float, *ready: tuple[Waiting, Selection]) -> float:
    """Seconds to wait for what is being computed; 0: not for that."""
    deferral = Deferral(node_budget=4, max_wait_s=0.002)
    deferral.heard(10.0)
    pause = deferral.pause(now, ready, False, 0.025)
    return pause.seconds if pause is not None and pause.due else 0.0


def test_what_is_being_computed_is_waited_for_until_it_is_due() -> None:
    """Also beyond the limit of waits for what may come, and a little longer, because it may be late."""
    assert due_s(10.0, (Waiting(due=10.010), drafts(0))) == pytest.approx(0.012)
    assert due_s(10.011, (Waiting(due=10.010), drafts(0))) == pytest.approx(0.001)
    assert due_s(10.013, (Waiting(due=10.010), drafts(0))) == 0.0


def test_what_is_late_when_the_sequence_gets_ready_is_waited_for_a_little() -> None:
    """It had to share the cores with a pass."""
    assert due_s(10.0, (Waiting(due=9.990), drafts(0))) == pytest.approx(0.002)
    assert due_s(10.003, (Waiting(due=9.990), drafts(0))) == 0.0


def test_who_is_always_late_is_not_waited_for_always() -> None:
    late = Waiting(due=9.990, patience=disappointed(For.DUE, 60))
    assert due_s(10.0, (late, drafts(0))) == 0.0


def test_what_is_due_has_to_be_worth_the_time_that_is_left() -> None:
    """Half a token is hoped for, of 25 ms."""
    assert due_s(10.0, (Waiting(due=10.0126), drafts(0))) == 0.0
    assert due_s(10.0, (Waiting(due=10.0124), drafts(0))) > 0.0
    patience = disappointed(For.DUE, 40)
    assert due_s(10.0, (Waiting(due=10.010, patience=patience), drafts(0))) == 0.0
    assert due_s(10.0, (Waiting(due=10.0015, patience=patience), drafts(0))) > 0.0


def test_what_is_due_again_and_again_is_not_waited_for_longer_than_a_token_takes() -> None:
    assert due_s(10.024, (Waiting(due=10.030), drafts(0))) == pytest.approx(0.001)
    assert due_s(10.026, (Waiting(due=10.030), drafts(0))) == 0.0


def test_the_soonest_of_several_that_are_due_ends_the_wait() -> None:
    late, soon = (Waiting(due=10.009), drafts(0)), (Waiting(due=10.004), drafts(0))
    assert due_s(10.0, late, soon) == pytest.approx(0.006)


def test_what_is_due_together_is_worth_what_it_brings_to_all_sequences() -> None:
    """The first of them hides none of the others."""
    poor = Waiting(due=10.003, patience=disappointed(For.DUE, 40)), drafts(0)
    good = Waiting(due=10.0031), drafts(0)
    assert due_s(10.0, poor) == 0.0
    assert due_s(10.0, poor, good) == pytest.approx(0.0051)
    assert due_s(10.0, poor, poor, poor, poor) == pytest.approx(0.005)


def test_who_is_not_worth_waiting_for_may_still_have_other_drafts() -> None:
    """Retrieval answers soon, whatever the model computes."""
    assert wait_s(10.0, (Waiting(due=10.9), drafts(0))) == pytest.approx(0.002)
    patience, wait, found = Patience(), Wait(), drafts(1)
    wait.look(drafts(0), due=10.9)
    wait.go_on(drafts(0))
    wait.look(found, due=10.9)
    wait.end(found, [0], patience)
    assert patience.gain(For.FIRST) > HOPE
    assert patience.gain(For.DUE) == HOPE


@pytest.mark.parametrize("max_wait_s", [0.0, 0.002])
def test_a_limit_of_nothing_waits_for_nothing(max_wait_s: float) -> None:
    deferral = Deferral(4, max_wait_s)
    deferral.heard(10.0)
    pause = deferral.pause(10.0, [(Waiting(due=10.001), drafts(0))], False, 0.025)
    assert (pause is not None and pause.due) == (max_wait_s > 0)


def test_waits_for_what_is_due_are_learnt_apart() -> None:
    patience = Patience()
    for _ in range(50):
        wait, found = Wait(), drafts(1)
        wait.look(drafts(0), due=10.0)
        wait.go_on(drafts(0), due=10.0)
        wait.look(found)
        wait.end(found, [0], patience)
    assert patience.gain(For.DUE) > 0.9
    assert patience.gain(For.FIRST) == HOPE
