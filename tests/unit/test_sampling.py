"""Warpers, distributions and the generator: against the plainest way to say the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.bus.messages.requests import Sampling
from shared.sampling import Distribution, History, uniform, warp

NOBODY = np.zeros(0, np.int64)
GOLDEN = [0.8403347244331143, 0.05459392083448278, 0.0924072433825085]


def rows(seed: int, n: int, spread: float, steps: int) -> NDArray[np.float32]:
    """Logits; few `steps` make many of them equal."""
    generator = np.random.default_rng(seed)
    return (np.round(generator.standard_normal(n) * steps) / steps * spread).astype(np.float32)


def reference(logits: NDArray[np.float32], history: list[int], s: Sampling) -> list[tuple[int, float]]:
    """Tokens with their probabilities, the likeliest first, lower ids first among equals."""
    values = logits.astype(np.float64)
    for token in set(history):
        r, value = np.float32(s.repetition_penalty), logits[token]
        values[token] = value / r if value > 0 else value * r
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    if s.temperature == 0:
        return [(order[0], 1.0)]
    weights = [(i, math.exp((values[i] - values[order[0]]) / s.temperature)) for i in order]
    if s.top_k:
        weights = weights[: s.top_k]
    weights = [(i, w) for i, w in weights if w >= s.min_p]
    wanted, total, kept = s.top_p * sum(w for _, w in weights), 0.0, []
    for i, w in weights:
        kept.append((i, w))
        total += w
        if s.top_p < 1 and total >= wanted:
            break
    return [(i, w / total) for i, w in kept]


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 40, 100, 5000]),
    top_p=st.sampled_from([1.0, 0.5, 0.9, 0.999]),
    min_p=st.sampled_from([0.0, 0.02, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
)


@given(
    st.integers(0, 2**32),
    st.sampled_from([3, 63, 64, 1000, 5000]),
    st.sampled_from([0.3, 2.5, 8.0]),
    st.sampled_from([2, 1000]),
    samplings,
    st.lists(st.integers(0, 2), max_size=5),
)
@settings(max_examples=80)
def test_the_warpers_do_what_they_say_in_their_order(
    seed: int, n: int, spread: float, steps: int, sampling: Sampling, history: list[int]
) -> None:
    logits = rows(seed, n, spread, steps)
    before = logits.copy()
    found = warp(logits, np.array(history, np.int64), sampling)
    assert (logits == before).all()
    wanted = reference(logits, history, sampling)
    probabilities = found.weights / found.total
    if found.ids is None:
        assert (sampling.top_k, sampling.min_p, sampling.top_p) == (0, 0, 1)
        assert probabilities == pytest.approx([p for _, p in sorted(wanted)], rel=2e-5, abs=1e-12)
        return
    # A token at the very border of top-p may fall on either side of it: sums are rounded.
    assert abs(len(found.ids) - len(wanted)) <= (sampling.top_p < 1)
    both = min(len(found.ids), len(wanted))
    assert found.ids[:both].tolist() == [i for i, _ in wanted[:both]]
    if len(found.ids) == len(wanted):
        assert probabilities == pytest.approx([p for _, p in wanted], rel=1e-9)


def test_logits_that_are_no_numbers_are_refused() -> None:
    for bad in (math.nan, math.inf):
        logits = rows(1, 100, 1.0, 100)
        logits[7] = bad
        with pytest.raises(ValueError, match="not finite"):
            warp(logits, NOBODY, Sampling(temperature=1.0))


@given(st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.3, 1.0, 7.0]), min_size=1, max_size=2000), st.data())
@settings(max_examples=60)
def test_every_share_of_a_draw_is_as_long_as_its_weight(weights: list[float], data: st.DataObject) -> None:
    """Also across the blocks that a long row is added up in; what has no weight never comes."""
    array = np.array(weights * data.draw(st.sampled_from([1, 3])))
    if not array.any():
        array[0] = 1.0
    found = Distribution(array)
    borders = array.cumsum() / array.sum()
    for u in (0.0, 1 - 2**-53, *data.draw(st.lists(st.floats(0, 1, exclude_max=True), max_size=20))):
        token = found.draw(u)
        assert array[token] > 0
        assert borders[token] - array[token] / array.sum() - 1e-9 <= u <= borders[token] + 1e-9


def test_a_draw_of_a_distribution_with_ids_is_one_of_them() -> None:
    found = Distribution(np.array([0.5, 0.5]), np.array([90, 7]))
    assert [found.draw(u) for u in (0.0, 0.49, 0.51)] == [90, 90, 7]
    assert [found.probability(token) for token in (90, 7, 8)] == [0.5, 0.5, 0.0]
    assert found.without([90]).draw(0.1) == 7


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=30)
def test_what_is_left_of_p_without_q_is_the_positive_difference(seed: int, whole: bool) -> None:
    """Of probabilities, however the weights are scaled."""
    generator = np.random.default_rng(seed)
    p, q = generator.random(20), generator.random(5)
    ids, some = generator.permutation(20), generator.permutation(25)[:5]
    some = some[some < 20] if whole else some
    q = q[: len(some)] + 0.01
    wanted = np.zeros(25)
    wanted[np.arange(20) if whole else ids] = p / p.sum()
    wanted[some] -= q / q.sum()
    left = Distribution(p, None if whole else ids).minus(Distribution(q, some))
    found = [left.probability(token) * left.total / p.sum() for token in range(20)]
    assert found == pytest.approx(np.maximum(wanted, 0)[:20].tolist(), abs=1e-12)


def test_the_generator_is_the_same_on_every_machine() -> None:
    """Answers can be computed again years later: these numbers must never change."""
    assert [uniform(0, 0), uniform(7, 1000), uniform(2**53 - 1, 2**53 - 1, 3)] == GOLDEN
    assert all(0 <= uniform(1, position) < 1 for position in range(1000))


def test_a_penalty_looks_at_the_window_and_at_the_path() -> None:
    sampling = Sampling(repetition_penalty=1.2)
    history = History(list(range(10)), 4, sampling)
    assert history.behind([]).tolist() == [6, 7, 8, 9]
    assert history.behind([50, 51]).tolist() == [8, 9, 50, 51]
    history.extend([60])
    assert history.behind([]).tolist() == [7, 8, 9, 60]
    assert History(list(range(10)), 4, Sampling(temperature=1.0)).behind([1]).tolist() == []
