"""What a pass costs and what a draft is worth: cost model, calibration, the budget against brute force."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.budget import Budget, Spread
from services.verifier.calibration import Calibration
from services.verifier.cost import PRIOR, PassCost
from shared.tree import TokenTrie

MOST = 64
# Of some other machine: everything is dearer, and 16 rows are hardly dearer than 12.
OTHER = {1: 1.0, 2: 1.2, 3: 1.5, 4: 1.8, 6: 2.5, 8: 3.2, 12: 4.5, 16: 4.6, 32: 9.0, 64: 18.0}


def true_cost(rows: int) -> float:
    known = sorted(OTHER)
    high = next(n for n in known if n >= rows)
    low = max(n for n in known if n <= rows)
    part = (rows - low) / (high - low) if high > low else 0.0
    return OTHER[low] + part * (OTHER[high] - OTHER[low])


def trained(passes: int, stall: float = 1.0, outliers: float = 0.0) -> PassCost:
    """After passes of 1 to 16 rows, 5 % noise; for the middle tenth it was `stall` times slower."""
    cost, draw = PassCost(MOST), random.Random(5)
    for i in range(passes):
        rows = draw.choice([1, 1, 2, 3, 4, 6, 8, 12, 16])
        seconds = 0.025 * true_cost(rows) * math.exp(draw.gauss(0.0, 0.05))
        if 0.45 * passes < i < 0.55 * passes:
            seconds *= stall
        if draw.random() < outliers:
            seconds *= draw.choice([0.05, 30.0])
        cost.observe(seconds, rows)
    return cost


def test_the_prior_is_where_it_begins() -> None:
    curve = PassCost(MOST).curve
    assert all(curve[n] == pytest.approx(value) for n, value in PRIOR.items())
    assert curve[6] == pytest.approx(1.58, abs=0.01), "straight between the known points"
    assert curve[64] > 10.0, "and on behind the last one"
    assert PassCost(MOST).seconds(4) == 0.0


@pytest.mark.parametrize(("stall", "outliers"), [(1.0, 0.0), (6.0, 0.0), (1.0, 0.02)])
def test_the_curve_of_another_machine_is_learnt_whatever_happens_on_the_way(
    stall: float, outliers: float
) -> None:
    cost = trained(1000, stall, outliers)
    for rows in (2, 3, 4, 6, 8, 12, 16):
        assert cost.curve[rows] == pytest.approx(true_cost(rows), rel=0.12)
    assert cost.unit_s == pytest.approx(0.025, rel=0.15)


def test_one_stalled_pass_moves_nothing_by_much() -> None:
    cost = trained(500)
    before = cost.curve[:17]
    cost.observe(10.0, 8)
    assert cost.curve[:17] == pytest.approx(before, rel=0.03)
    assert cost.unit_s < 0.025 * 1.15


def test_a_machine_that_becomes_slow_is_slow_for_every_number_of_rows() -> None:
    """Throttled, while only passes of 8 rows are run: plain decoding must not look cheap now."""
    cost = trained(1000)
    relative = cost.curve[8]
    for _ in range(60):
        cost.observe(3 * 0.025 * true_cost(8), 8)
    assert cost.curve[8] == pytest.approx(relative, rel=0.2)
    assert cost.unit_s == pytest.approx(3 * 0.025, rel=0.25)


def test_the_first_pass_may_be_slow() -> None:
    """It reads cold weights."""
    cost = PassCost(MOST)
    cost.observe(2.0, 1, chunk=64)
    for _ in range(10):
        cost.observe(0.025, 1)
    assert cost.unit_s == pytest.approx(0.025, rel=0.1)


def test_unmeasured_sizes_follow_their_measured_neighbours_and_are_forgotten_in_time() -> None:
    cost = PassCost(MOST)
    for _ in range(200):
        cost.observe(0.025, 1)
        cost.observe(0.025 * 2 * PRIOR[8], 8)
    assert cost.curve[8] == pytest.approx(2 * PRIOR[8], rel=0.1)
    assert PRIOR[16] * 1.2 < cost.curve[16]
    for _ in range(20_000):
        cost.observe(0.025, 1)
    assert cost.curve[8] < 1.1 * PRIOR[8], "worth another trial"


def test_chunks_and_contexts_have_their_own_costs() -> None:
    cost, draw = PassCost(MOST), random.Random(1)
    for _ in range(3000):
        rows, chunk, visible = draw.choice([1, 2, 4, 8]), draw.choice([0, 0, 16, 64]), draw.choice([0, 1000])
        relative = true_cost(rows) + 0.3 * chunk + 1e-4 * rows * visible
        cost.observe(0.01 * relative * math.exp(draw.gauss(0.0, 0.03)), rows, chunk, rows * visible)
    assert cost.chunk_row == pytest.approx(0.3, rel=0.15)
    assert cost.attended == pytest.approx(1e-4, rel=0.25)
    assert cost.seconds(4, 64, 4000) == pytest.approx(0.01 * (1.8 + 19.2 + 0.4), rel=0.1)


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=True, allow_infinity=True), st.integers(0, 300), st.integers(0, 64)),
        max_size=200,
    ),
    st.sampled_from([1, 2, 7, 64, 300]),
)
def test_the_curve_never_falls_and_stays_finite_whatever_is_measured(
    passes: list[tuple[float, int, int]], most: int
) -> None:
    cost = PassCost(most)
    for seconds, rows, chunk in passes:
        cost.observe(seconds, rows, chunk, rows * 100)
    curve = cost.curve
    assert len(curve) == most + 1
    assert curve[0] == curve[1] == 1.0
    assert all(a <= b < math.inf for a, b in itertools.pairwise(curve))
    assert math.isfinite(cost.seconds(most, 64, 1000))


# --- calibration -----------------------------------------------------------------------------------


def claim(*nodes: tuple[int, int, float]) -> TokenTrie:
    """Children of the root: token, source, claimed probability."""
    trie = TokenTrie(1)
    for token, source, p in nodes:
        trie.insert_path(1, [token], source, [math.log(p)])
    return trie


def probability(calibration: Calibration, trie: TokenTrie, token: int, depth: int = 1) -> float:
    return math.exp(calibration.weigh(trie.root.children[token], depth))


def test_a_claim_is_believed_until_there_is_evidence() -> None:
    trie = claim((1, 0, 0.9), (2, 1, 0.07))
    assert probability(Calibration(), trie, 1) == pytest.approx(0.9, abs=0.06)
    assert probability(Calibration(), trie, 2) == pytest.approx(0.07, abs=0.03)


def test_a_source_that_exaggerates_is_found_out_and_the_others_keep_their_word() -> None:
    calibration, draw = Calibration(), random.Random(3)
    for _ in range(400):
        right = draw.random()
        calibration.learn(claim((1, 0, 0.9), (2, 1, 0.6)), [1 if right < 0.1 else 2 if right < 0.7 else 3])
    trie = claim((1, 0, 0.9), (2, 1, 0.6), (4, 2, 0.9))
    assert probability(calibration, trie, 1) == pytest.approx(0.1, abs=0.05)
    assert probability(calibration, trie, 2) == pytest.approx(0.6, abs=0.06)
    assert probability(calibration, trie, 4) > 0.8
    assert probability(calibration, claim((5, 0, 0.3)), 5) == pytest.approx(0.3, abs=0.06)


def test_depths_are_told_apart_and_an_unseen_depth_leans_on_the_others() -> None:
    calibration = Calibration()
    for _ in range(300):
        trie = TokenTrie(1)
        trie.insert_path(1, [1, 2], 0, [math.log(0.6)] * 2)
        calibration.learn(trie, [1, 9])
    node = claim((1, 0, 0.6)).root.children[1]
    first, second, deep = (math.exp(calibration.weigh(node, depth)) for depth in (1, 2, 9))
    assert first > 0.95
    assert second < 0.05
    assert second < deep < first


def test_only_children_of_accepted_nodes_are_trials() -> None:
    """What hangs below a wrong token was not asked about."""
    calibration = Calibration()
    for _ in range(100):
        trie = TokenTrie(1)
        trie.insert_path(1, [1, 2], 0, [math.log(0.6)] * 2)
        calibration.learn(trie, [7, 2])
    node = claim((1, 0, 0.6)).root.children[1]
    assert math.exp(calibration.weigh(node, 1)) < 0.1
    untouched = Calibration()
    before = math.exp(untouched.weigh(node, 2))
    narrow_unseen = math.exp(calibration.weigh(node, 2))
    assert narrow_unseen < before, "it leans on the first depth, which it has no evidence against"


def test_what_two_sources_propose_is_a_kind_of_its_own() -> None:
    calibration = Calibration()
    for _ in range(200):
        calibration.learn(claim((1, 0, 0.4), (1, 1, 0.4)), [1])
        calibration.learn(claim((1, 0, 0.4)), [2])
    assert probability(calibration, claim((1, 0, 0.4), (1, 1, 0.4)), 1) > 0.9
    assert probability(calibration, claim((1, 0, 0.4)), 1) < 0.1


def test_old_evidence_fades() -> None:
    calibration, trie = Calibration(), claim((1, 0, 0.6))
    for _ in range(5000):
        calibration.learn(trie, [1])
    for _ in range(1500):
        calibration.learn(trie, [2])
    assert probability(calibration, trie, 1) < 0.15


# --- budget ----------------------------------------------------------------------------------------


@dataclass
class Offered:
    trie: TokenTrie = field(default_factory=lambda: TokenTrie(1))
    severity: int = 0
    room: int = 100
    answer_left: int = 100
    visible: int = 0


@st.composite
def offers(draw: st.DrawFn) -> list[Offered]:
    """One to three sequences with three to four drafted nodes each."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        offered = Offered(severity=draw(st.integers(0, 3)), room=draw(st.integers(1, 5)), visible=500)
        n = draw(st.integers(0, 4))
        parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
        logq = [math.log(draw(st.sampled_from([0.03, 0.3, 0.57, 0.93]))) for _ in range(n)]
        offered.trie.insert(1, list(range(n)), parents, [0] * n, logq)
        found.append(offered)
    return found


Choice = tuple[int, float]  # nodes, sum of their path probabilities times the weight of a token


def choices(offered: Offered, calibration: Calibration, each: int) -> list[Choice]:
    """Every tree that contains each node's parent, and what its tokens are worth."""
    every = offered.trie.best(99, min(offered.room, offered.answer_left) - 1, -math.inf, calibration.weigh)
    found = []
    for mask in itertools.product([False, True], repeat=len(every)):
        if sum(mask) <= each and all(
            not taken or parent < 0 or mask[parent] for taken, parent in zip(mask, every.parents, strict=True)
        ):
            probability = sum(math.exp(s) for s, t in zip(every.scores, mask, strict=True) if t)
            found.append((sum(mask), (1 + offered.severity) * probability))
    return found


def rows_of(spread: Spread) -> int:
    """Of the pass: a root for each sequence, and its drafts."""
    return len(spread.drafts) + sum(len(selection) for selection in spread.drafts)


@given(
    offers(), st.integers(0, 5), st.integers(0, 8), st.sampled_from([0, 16]), st.sampled_from([PRIOR, OTHER])
)
def test_the_budget_finds_what_trying_everything_finds(
    ready: list[Offered], each: int, nodes: int, chunk: int, prior: dict[int, float]
) -> None:
    """But for trees that gain less than two per cent, and paths below two per cent."""
    calibration, cost = Calibration(), PassCost(MOST, prior)
    spread = Budget(cost, calibration).spread(ready, each, nodes, chunk)
    sizes = [len(drafts) for drafts in spread.drafts]
    assert sum(sizes) <= nodes
    assert max(sizes) <= each

    def rate(rows: int, tokens: float) -> float:
        floor = cost.curve[len(ready)]
        for n in range(len(ready) + 1, rows + 1):
            floor = max(cost.curve[n], floor + (cost.chunk_row if chunk else 0.0))
        return tokens / (floor + rows * 500 * cost.attended + chunk * cost.chunk_row)

    base = sum(1 + offered.severity for offered in ready)
    best = 0.0
    for combination in itertools.product(*(choices(o, calibration, each) for o in ready)):
        size = sum(n for n, _ in combination)
        if size <= nodes:
            best = max(best, rate(len(ready) + size, base + sum(value for _, value in combination)))
    drafted = [sum(math.exp(s) for s in drafts.scores) for drafts in spread.drafts]
    worth = base + sum((1 + o.severity) * p for o, p in zip(ready, drafted, strict=True))
    assert rate(rows_of(spread), worth) >= best / 1.03
    assert spread.tokens == pytest.approx(len(ready) + sum(drafted))
    assert rate(rows_of(spread), spread.tokens) == pytest.approx(spread.tokens / spread.cost)


def chain(p: float, n: int = 20) -> Offered:
    offered = Offered()
    offered.trie.insert_path(1, list(range(n)), 0, [math.log(p)] * n)
    return offered


def test_what_is_sure_is_drafted_deep_and_what_is_not_is_decoded_plainly() -> None:
    budget = Budget(PassCost(MOST), Calibration())
    assert len(budget.spread([chain(0.995)], 16, 63, 0).drafts[0]) == 16
    assert 1 <= len(budget.spread([chain(0.6)], 16, 63, 0).drafts[0]) <= 5
    assert len(budget.spread([chain(0.03)], 16, 63, 0).drafts[0]) == 0


def test_sequences_share_a_pass_by_what_their_drafts_are_worth() -> None:
    sure, fair, poor = chain(0.995), chain(0.93), chain(0.5)
    spread = Budget(PassCost(MOST), Calibration()).spread([poor, sure, fair], 16, 61, 0)
    counts = [len(drafts) for drafts in spread.drafts]
    assert counts[1] > counts[2] > counts[0] == 0


def test_a_severe_alarm_is_not_held_up_for_little() -> None:
    """An answer that nothing predicts, beside one that is well predicted."""
    budget = Budget(PassCost(MOST), Calibration())
    rows = []
    for severity in (0, 3):
        plain, other = chain(0.03), chain(0.85)
        plain.severity = severity
        rows.append(rows_of(budget.spread([plain, other], 16, 62, 0)))
    assert rows[1] < rows[0]


def test_a_dear_context_makes_drafts_shorter() -> None:
    near, far = chain(0.8), chain(0.8)
    far.visible = 20_000
    budget = Budget(PassCost(MOST), Calibration())
    assert len(budget.spread([far], 16, 63, 0).drafts[0]) < len(budget.spread([near], 16, 63, 0).drafts[0])
