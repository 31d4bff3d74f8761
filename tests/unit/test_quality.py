"""bench.quality: the arithmetic of perplexity and divergence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.quality import cumulative_perplexity, divergence, log_softmax


def test_perplexity_accumulates_over_chunks() -> None:
    """After n chunks: e to the mean of their mean negative log likelihoods."""
    assert cumulative_perplexity([1.0, 3.0]) == pytest.approx([math.e, math.e**2])


def test_divergence_over_all_tokens_is_the_full_kl() -> None:
    """With the whole vocabulary as the top tokens nothing is merged; identical predictions diverge by 0."""
    rng = np.random.default_rng(1)
    reference, engine = log_softmax(rng.normal(size=(3, 8))), log_softmax(rng.normal(size=(3, 8)))
    ids = np.tile(np.arange(8, dtype=np.int32), (3, 1))
    full = (np.exp(reference) * (reference - engine)).sum(-1)
    np.testing.assert_allclose(divergence(ids, reference, engine), full, atol=1e-9)
    np.testing.assert_allclose(divergence(ids, reference, reference), 0.0, atol=1e-9)


def test_divergence_of_top_tokens_is_a_lower_bound() -> None:
    """Merging the other tokens into one bucket never raises a divergence, and it stays positive."""
    rng = np.random.default_rng(2)
    reference, engine = log_softmax(rng.normal(size=(4, 16))), log_softmax(rng.normal(size=(4, 16)))
    ids = np.argsort(-reference, -1)[:, :5].astype(np.int32)
    full = (np.exp(reference) * (reference - engine)).sum(-1)
    bound = divergence(ids, np.take_along_axis(reference, ids.astype(np.int64), -1), engine)
    assert (bound <= full).all()
    assert (bound >= 0.0).all()
