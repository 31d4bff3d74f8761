"""The likeliest tokens of a row of logits: the native search that the draft service asks for every token."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shared.native import likeliest_tokens

ROWS = arrays.arrays(
    np.float32,
    st.integers(1, 400),
    elements=st.one_of(st.sampled_from((-1.0, 0.0, 2.5)), st.floats(-50, 50, width=32)),
)


@given(ROWS, st.integers(1, 40))
def test_they_are_sorted_with_the_lowest_id_first_among_equals(row: np.ndarray, k: int) -> None:
    tokens, _ = likeliest_tokens(row, k)
    assert tokens == sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]


@given(ROWS)
def test_their_probabilities_are_those_of_the_softmax_over_the_whole_row(row: np.ndarray) -> None:
    tokens, logq = likeliest_tokens(row, len(row))
    wide = row.astype(np.float64)
    log_sum = float(wide.max()) + math.log(float(np.exp(wide - wide.max()).sum()))
    np.testing.assert_allclose(logq, wide[tokens] - log_sum, rtol=1e-6, atol=2e-6)


def test_a_whole_vocabulary_is_searched() -> None:
    row = np.random.default_rng(1).normal(size=151_936).astype(np.float32)
    row[[151_935, 70_000, 3]] = 9.0, 8.0, 8.0
    assert likeliest_tokens(row, 3)[0] == [151_935, 3, 70_000]


@pytest.mark.parametrize("top", [math.inf, math.nan])
def test_logits_that_are_not_finite_are_refused(top: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        likeliest_tokens(np.full(100, top, np.float32), 2)


def test_none_is_no_number_to_ask_for() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        likeliest_tokens(np.zeros(100, np.float32), 0)
