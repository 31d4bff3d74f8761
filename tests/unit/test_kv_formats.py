"""Keys and values in the pool, read back by the layout that core/kv_pool.hpp draws."""

from __future__ import annotations

import mmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.config.settings import KvFormat
from shared.native import BLOCK_TOKENS, KvPool, Model, Scratch, SequenceView, pack, packed_bytes

Floats = NDArray[np.float32]

HEADS, DIM, EMBD, VOCABULARY = 2, 32, 64, 16
TOKENS = 40  # the ring of two blocks wraps
SPEC = {
    "architecture": "qwen2", "n_layer": 1, "n_embd": EMBD, "n_head": 2, "n_kv_head": HEADS,
    "head_dim": DIM, "n_ff": 32, "n_vocab": VOCABULARY, "rope_base": 1e4, "rms_eps": 1e-5,
}  # fmt: skip
MATRICES = {
    "token_embd": VOCABULARY, "blk.0.attn_q": EMBD, "blk.0.attn_k": EMBD, "blk.0.attn_v": EMBD,
    "blk.0.attn_output": EMBD, "blk.0.ffn_gate": 32, "blk.0.ffn_up": 32,
}  # fmt: skip


def tiny_model(path: Path, rng: np.random.Generator, size: float, bias: float) -> Model:
    """One layer of random weights. `size` is that of the keys and values, `bias` that of the keys' bias."""
    tensors: list[tuple[str, int, int, int, int, int]] = []
    with path.open("wb") as file:

        def add(name: str, values: Floats) -> None:
            rows, cols = values.shape
            data = bytearray(values.tobytes())
            if rows > 1:
                data = bytearray(packed_bytes(0, rows, cols))
                pack(0, values, rows, cols, data)
            file.write(bytes(-file.tell() % 64))
            tensors.append((name, 0, rows, cols, file.tell(), len(data)))
            file.write(data)

        def normal(rows: int, cols: int, scale: float = 1.0) -> Floats:
            return (scale * rng.standard_normal((rows, cols))).astype(np.float32)

        for name, rows in MATRICES.items():
            add(f"{name}.weight", normal(rows, EMBD, size if name[-1] in "kv" else 1.0))
        add("blk.0.ffn_down.weight", normal(EMBD, 32))
        for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
            add(f"{name}.weight", normal(1, EMBD))
        for name in "qkv":
            add(f"blk.0.attn_{name}.bias", normal(1, EMBD, bias if name == "k" else 0.0))
    return Model(str(path), SPEC, tensors, 1)


def stored(model: Model, kv: KvFormat, tokens: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """The first layer's keys and values as attention reads them, and their scales (1 for f16).

    Both [K or V, kv head, slot, head dim]; scales have 1 for the last. Of the newest positions of a ring.
    """
    size = KvPool.block_bytes([model.plane], kv)
    memory = mmap.mmap(-1, 2 * size)
    view = SequenceView(KvPool(memory, 2, [model.plane], kv), 0, 0, 2 * BLOCK_TOKENS, 20)
    view.set_blocks(0, np.array([1, 0], np.int32))
    scratch = Scratch(model, 12, 1, kv)
    for at in range(0, len(tokens), 12):
        n = len(tokens[at : at + 12])
        path = np.arange(n, dtype=np.int32)
        scratch.forward([view], np.zeros(n, np.int32), tokens[at : at + n], path - 1, path[:0])
        scratch.commit(view, path)
        scratch.drop(view)
    heads = np.frombuffer(memory[size:] + memory[:size], np.uint8).reshape(2, 2, HEADS, -1)
    numbers: NDArray[Any] = heads.view(np.float16)
    scales = np.ones((2, 2, HEADS, BLOCK_TOKENS), np.float32)
    if kv == "int8":
        numbers = heads[..., : BLOCK_TOKENS * DIM].copy().view(np.int8)
        scales = heads[..., BLOCK_TOKENS * DIM :].copy().view(np.float32)
    keys = numbers[:, 0].reshape(2, HEADS, DIM, BLOCK_TOKENS).swapaxes(-1, -2)
    values = numbers[:, 1].reshape(2, HEADS, BLOCK_TOKENS, DIM)
    both = np.stack([keys, values], 1).astype(np.float32) * scales[..., None]
    by_slot = both.transpose(1, 2, 0, 3, 4).reshape(2, HEADS, 2 * BLOCK_TOKENS, DIM)
    return by_slot, scales.transpose(1, 2, 0, 3).reshape(2, HEADS, 2 * BLOCK_TOKENS, 1)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([0.0, 1e-3, 1.0, 30.0]),
    bias=st.sampled_from([0.0, 1.0, 200.0]),
)
def test_a_number_read_back_from_int8_is_off_by_half_a_scale_at_most(
    seed: int, size: float, bias: float
) -> None:
    """Against f16 of the same pass (a first layer's keys and values depend on no context), through commits
    that wrap the ring; the scale is the largest magnitude of its vector / 127."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCABULARY, TOKENS).astype(np.int32)
    with TemporaryDirectory() as directory:
        model = tiny_model(Path(directory) / "model", rng, size, bias)
        f16, _ = stored(model, "f16", tokens)
        int8, scales = stored(model, "int8", tokens)
    rounding = np.abs(f16) * 2.0**-11 + 2.0**-25
    assert (np.abs(int8 - f16) <= 0.5001 * scales + rounding).all()
    largest = np.abs(f16).max(-1, keepdims=True)
    np.testing.assert_allclose(scales, largest / 127, rtol=1e-3, atol=1e-9)
