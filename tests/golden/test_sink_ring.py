"""Sink and ring against an independent StreamingLLM reference (tests/data/README.md).

Each configuration runs in a pool that holds only its sink and its ring, so that the ring wraps several times,
in chunks of changing sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.config.settings import KvFormat
from shared.native import Model
from tests.golden.engine_runs import (
    GOLDEN,
    Floats,
    Ids,
    Run,
    cut,
    kl_lower_bound,
    log_softmax,
    open_test_model,
)

CHUNKS = (1, 7, 16, 33)
WITH_SINK = ((4, 60), (16, 112), (37, 91))  # S, W
WITHOUT_SINK = ((0, 64), (0, 128))
STREAMS = ("a_en", "a_zh")


@pytest.fixture(scope="module", params=["smol", "qwen05"])
def model(request: pytest.FixtureRequest) -> tuple[str, Model]:
    return request.param, open_test_model(request.param).load(2)


class Stream:
    """Negative log-likelihood of each next token, and the divergence at the reference's positions."""

    def __init__(
        self,
        model: Model,
        golden: dict[str, NDArray[Any]],
        tag: str,
        sink: int,
        window: int,
        kv: KvFormat = "f16",
    ) -> None:
        ids: Ids = golden["ids"].astype(np.int32)
        run = Run(model, sink, window + max(CHUNKS), window, kv=kv)
        nll: list[float] = []
        rows: list[Floats] = []
        for piece in cut(len(ids), CHUNKS):
            logits = run.chunk(ids[piece], np.arange(piece.stop - piece.start, dtype=np.int32))
            following = ids[piece.start + 1 : piece.stop + 1]
            nll.extend(-log_softmax(logits)[np.arange(len(following)), following])
            rows.extend(logits[p - piece.start] for p in golden["positions"] if piece.start <= p < piece.stop)
        self.nll = np.array(nll)
        self.error = np.abs(self.nll - golden[f"{tag}_nll"]).mean()
        self.divergence = kl_lower_bound(
            golden[f"{tag}_top_ids"], golden[f"{tag}_top_logits"], golden[f"{tag}_logsumexp"], np.array(rows)
        ).mean()


@pytest.mark.parametrize("text", STREAMS)
def test_a_stream_with_a_sink_is_followed_as_closely_as_dense_attention(
    model: tuple[str, Model], text: str
) -> None:
    """Error per token and divergence stay within what quantised activations cost without any sink or ring."""
    name, weights = model
    golden = dict(np.load(GOLDEN / f"stream_{name}_{text}.npz"))
    dense = Stream(weights, golden, "full", 0, len(golden["ids"]))
    for sink, window in WITH_SINK:
        stream = Stream(weights, golden, f"s{sink}_w{window}", sink, window)
        assert stream.error <= 1.5 * dense.error, (sink, window)
        assert stream.divergence <= 2.0 * dense.divergence + 5e-4, (sink, window)


INT8_ERROR = {"smol": 1.3, "qwen05": 2.2}  # times the error of f16, whose own is smaller for qwen05
INT8_DIVERGENCE = 2e-3  # nats more than f16


@pytest.mark.parametrize("text", STREAMS)
def test_a_stream_with_a_sink_is_followed_with_int8_keys_and_values(
    model: tuple[str, Model], text: str
) -> None:
    """Error per token within a factor of f16's, and little more divergence, for every sink and window."""
    name, weights = model
    golden = dict(np.load(GOLDEN / f"stream_{name}_{text}.npz"))
    for sink, window in WITH_SINK:
        f16 = Stream(weights, golden, f"s{sink}_w{window}", sink, window)
        int8 = Stream(weights, golden, f"s{sink}_w{window}", sink, window, "int8")
        assert int8.error <= INT8_ERROR[name] * f16.error, (sink, window)
        assert int8.divergence <= f16.divergence + INT8_DIVERGENCE, (sink, window)


@pytest.mark.parametrize("text", STREAMS)
def test_a_window_without_sink_loses_as_much_as_the_reference(model: tuple[str, Model], text: str) -> None:
    """Mean loss within 5 %. Without its sink a model is unstable, single tokens cannot be compared."""
    name, weights = model
    golden = dict(np.load(GOLDEN / f"stream_{name}_{text}.npz"))
    for sink, window in WITHOUT_SINK:
        tag = f"s{sink}_w{window}"
        stream = Stream(weights, golden, tag, sink, window)
        assert stream.nll.mean() == pytest.approx(golden[f"{tag}_nll"].mean(), rel=0.05), tag
