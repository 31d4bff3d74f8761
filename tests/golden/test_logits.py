"""The engine's logits against an independent float32 reference of the same weights (tests/data/README.md)."""

from __future__ import annotations

import numpy as np
import pytest

from shared.native import Model
from tests.golden.engine_runs import GOLDEN, PROMPTS, Floats, Run, cut, kl_lower_bound, open_test_model

# Mean KL(fp32 || llama.cpp) at the same kind of positions, over the whole vocabulary, same GGUF files.
LLAMA_CPP_KL = {"smol": 0.0029, "qwen05": 0.0010, "qwen15": 0.0017}
ALLOWED = 1.0  # times llama.cpp's
CLEAR_MARGIN = 0.5  # of the reference's top logit over the second; below, quantised activations may swap them


@pytest.fixture(scope="module", params=["smol", "qwen05", "qwen15"])
def model(request: pytest.FixtureRequest) -> tuple[str, Model]:
    return request.param, open_test_model(request.param).load(2)


def logits_at_the_end(model: Model, ids: Floats, positions: int) -> Floats:
    """Logits of the last `positions` tokens, the prompt processed in chunks of 64."""
    n = len(ids)
    run = Run(model, sink=0, ring=n, window=n)
    rows = []
    for piece in cut(n, [64]):
        first = max(n - positions - piece.start, 0)
        outputs = np.arange(first, piece.stop - piece.start, dtype=np.int32)
        rows.append(run.chunk(ids[piece].astype(np.int32), outputs))
    return np.concatenate(rows)


def test_logits_follow_the_reference(model: tuple[str, Model]) -> None:
    """Top-1 equal wherever the margin is clear; mean KL over the prompts not above llama.cpp's."""
    name, weights = model
    divergences = []
    for prompt in PROMPTS:
        golden = np.load(GOLDEN / f"logits_{name}_{prompt}.npz")
        logits = logits_at_the_end(weights, golden["prompt_ids"], len(golden["positions"]))
        clear = golden["top_logits"][:, 0] - golden["top_logits"][:, 1] > CLEAR_MARGIN
        np.testing.assert_array_equal(
            logits.argmax(-1)[clear], golden["top_ids"][clear, 0], err_msg=f"{name} {prompt}"
        )
        divergences.append(
            kl_lower_bound(golden["top_ids"], golden["top_logits"], golden["logsumexp"], logits).mean()
        )
    assert np.mean(divergences) <= ALLOWED * LLAMA_CPP_KL[name]


def test_argmax_is_the_largest_logit(model: tuple[str, Model]) -> None:
    """argmax() names the first of the largest logits of every output row."""
    _, weights = model
    run = Run(weights, sink=0, ring=64, window=64)
    tokens = (np.arange(40, dtype=np.int32) * 997) % weights.n_vocab
    run.scratch.forward(
        [run.view],
        np.zeros(40, np.int32),
        tokens,
        np.arange(-1, 39, dtype=np.int32),
        np.arange(40, dtype=np.int32),
    )
    np.testing.assert_array_equal(run.scratch.argmax(), run.scratch.logits().argmax(-1))
