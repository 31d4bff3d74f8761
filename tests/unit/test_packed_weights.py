"""Packed weights hold exactly what the GGUF holds, and the product follows it."""

from typing import Any

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared import native

Bytes = NDArray[np.uint8]

QUANTISED = {
    # where the f16 fields of a block are
    GGMLQuantizationType.Q4_0: (0,),
    GGMLQuantizationType.Q4_1: (0, 2),
    GGMLQuantizationType.Q5_0: (0,),
    GGMLQuantizationType.Q5_1: (0, 2),
    GGMLQuantizationType.Q8_0: (0,),
    GGMLQuantizationType.Q4_K: (0, 2),
    GGMLQuantizationType.Q5_K: (0, 2),
    GGMLQuantizationType.Q6_K: (208,),
}
FLOATS = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)
EVERY_TYPE = (*QUANTISED, *FLOATS)


def random_blocks(kind: GGMLQuantizationType, rows: int, cols: int, rng: np.random.Generator) -> Bytes:
    """Every bit pattern of a GGUF tensor [rows, cols], scales included: infinite, NaN, subnormal."""
    block, size = GGML_QUANT_SIZES[kind]
    return rng.integers(0, 256, (rows, cols // block * size), dtype=np.uint8)


def with_scales(kind: GGMLQuantizationType, blocks: Bytes, values: NDArray[np.float16]) -> Bytes:
    """The same blocks with the f16 fields taken from `values` in turn."""
    size = GGML_QUANT_SIZES[kind][1]
    flat = blocks.reshape(-1, size).copy()
    for i, offset in enumerate(QUANTISED[kind]):
        fields = np.resize(np.roll(values, i), len(flat)).astype(np.float16)
        flat[:, offset : offset + 2] = fields.view(np.uint8).reshape(-1, 2)
    return flat.reshape(blocks.shape)


def packed(kind: GGMLQuantizationType, blocks: Bytes, rows: int, cols: int) -> Bytes:
    target = np.zeros(native.packed_bytes(kind, rows, cols), np.uint8)
    native.pack(kind, blocks, rows, cols, target)
    return target


def assert_same_floats(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Equal bits, but that any NaN equals any other."""
    both_nan = np.isnan(ours) & np.isnan(theirs)
    bits, wanted = (np.where(both_nan, 0, side).astype(np.float32).view(np.uint32) for side in (ours, theirs))
    np.testing.assert_array_equal(bits, wanted)


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda kind: kind.name)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 40), blocks=st.integers(1, 5))
@settings(max_examples=25)
def test_packed_rows_have_the_bits_of_the_ggufs_own_dequantisation(
    kind: GGMLQuantizationType, seed: int, rows: int, blocks: int
) -> None:
    rng = np.random.default_rng(seed)
    cols = blocks * GGML_QUANT_SIZES[kind][0]
    source = random_blocks(kind, rows, cols, rng)
    ids = rng.permutation(rows).astype(np.int32)
    with np.errstate(all="ignore"):
        expected = dequantize(source, kind).reshape(rows, cols)
    ours = native.dequantize_rows(kind, packed(kind, source, rows, cols), rows, cols, ids)
    assert_same_floats(ours, expected[ids])


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("fill", [0x00, 0x7F, 0x80, 0xFF])
def test_extreme_blocks_keep_every_bit(kind: GGMLQuantizationType, fill: int) -> None:
    cols = 3 * GGML_QUANT_SIZES[kind][0]
    source = np.full_like(random_blocks(kind, 17, cols, np.random.default_rng(0)), fill)
    source = with_scales(kind, source, np.array([1, -65504, 6e-8, -0.0, 65504], np.float16))
    ours = native.dequantize_rows(
        kind, packed(kind, source, 17, cols), 17, cols, np.arange(17, dtype=np.int32)
    )
    assert_same_floats(ours, dequantize(source, kind).reshape(17, cols))


@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda kind: kind.name)
def test_packing_costs_at_most_five_percent(kind: GGMLQuantizationType) -> None:
    block, size = GGML_QUANT_SIZES[kind]
    for rows, cols in [(1536, 8960), (8960, 1536), (896, 4864)]:
        if cols % block == 0:
            assert native.packed_bytes(kind, rows, cols) <= 1.05 * rows * cols / block * size


@pytest.mark.parametrize("isa", native.isa_names())
@pytest.mark.parametrize("kind", EVERY_TYPE, ids=lambda kind: kind.name)
def test_product_follows_the_ggufs_weights(kind: GGMLQuantizationType, isa: str) -> None:
    """Within the rounding of int8 activations: a column is off by up to half a step of amax / 127."""
    rng = np.random.default_rng(5)
    rows, cols, n = 51, 512, 7
    source = random_blocks(kind, rows, cols, rng)
    if kind in QUANTISED:
        source = with_scales(kind, source, rng.normal(0, 0.01, 97).astype(np.float16))
    else:
        weights = rng.normal(0, 0.02, (rows, cols)).astype(np.float32)
        half = (weights.view(np.uint32) >> 16).astype(np.uint16)
        raw: dict[GGMLQuantizationType, NDArray[Any]] = {
            GGMLQuantizationType.F32: weights,
            GGMLQuantizationType.F16: weights.astype(np.float16),
            GGMLQuantizationType.BF16: half,
        }
        source = raw[kind].view(np.uint8)
    w = dequantize(source, kind).reshape(rows, cols).astype(np.float64)
    x = rng.normal(0, 1, (n, cols)).astype(np.float32)
    ours = native.matmul(kind, packed(kind, source, rows, cols), rows, cols, x, isa)
    expected = x.astype(np.float64) @ w.T
    step = 0.0 if kind in FLOATS else np.abs(x).max() / 127
    bound = 1e-5 * np.abs(x) @ np.abs(w).T + 4 * step / np.sqrt(12) * np.linalg.norm(w, axis=1)
    assert (np.abs(ours - expected) <= bound).all()


@pytest.mark.parametrize("isa", native.isa_names())
def test_threads_and_batches_do_not_change_a_bit(isa: str) -> None:
    rng = np.random.default_rng(6)
    kind, rows, cols = GGMLQuantizationType.Q4_K, 93, 768
    source = with_scales(
        kind, random_blocks(kind, rows, cols, rng), rng.normal(0, 0.01, 97).astype(np.float16)
    )
    weights = packed(kind, source, rows, cols)
    x = rng.normal(0, 1, (37, cols)).astype(np.float32)
    whole = native.matmul(kind, weights, rows, cols, x, isa)
    np.testing.assert_array_equal(whole, native.matmul(kind, weights, rows, cols, x, isa, threads=3))
    np.testing.assert_array_equal(whole[5:6], native.matmul(kind, weights, rows, cols, x[5:6], isa))


def test_weights_at_an_odd_address_are_read_correctly() -> None:
    kind = GGMLQuantizationType.Q4_0
    blocks = random_blocks(kind, 16, 64, np.random.default_rng(8))
    source = with_scales(kind, blocks, np.array([0.5], np.float16))
    weights = packed(kind, source, 16, 64)
    shifted = np.zeros(len(weights) + 1, np.uint8)[1:]
    shifted[:] = weights
    x = np.ones((1, 64), np.float32)
    np.testing.assert_array_equal(
        native.matmul(kind, shifted, 16, 64, x, ""), native.matmul(kind, weights, 16, 64, x, "")
    )


class TestBadInput:
    kind = GGMLQuantizationType.Q4_K
    good = np.zeros(native.packed_bytes(kind, 16, 256), np.uint8)
    x = np.zeros((1, 256), np.float32)

    def test_unknown_type_is_named(self) -> None:
        with pytest.raises(ValueError, match="tensor type 99"):
            native.packed_bytes(99, 16, 256)
        with pytest.raises(ValueError, match="tensor type -1"):
            native.packed_bytes(-1, 16, 256)

    @pytest.mark.parametrize(("rows", "cols"), [(16, 255), (0, 256), (-16, 256), (16, 0), (2**40, 256)])
    def test_shape_that_does_not_fit_is_named(self, rows: int, cols: int) -> None:
        with pytest.raises(ValueError, match=f"{rows}, {cols}"):
            native.packed_bytes(self.kind, rows, cols)

    def test_short_buffers_are_refused(self) -> None:
        source = np.zeros(16 * 144, np.uint8)
        with pytest.raises(ValueError, match="source holds 2303 bytes, 2304 are needed"):
            native.pack(self.kind, source[:-1], 16, 256, self.good.copy())
        with pytest.raises(ValueError, match="target holds"):
            native.pack(self.kind, source, 16, 256, self.good[:-1].copy())
        with pytest.raises(ValueError, match="packed holds"):
            native.dequantize_rows(self.kind, self.good[:-1], 16, 256, np.zeros(1, np.int32))
        with pytest.raises(ValueError, match="packed holds"):
            native.matmul(self.kind, self.good[:-1], 16, 256, self.x, "")

    @pytest.mark.parametrize("row", [-1, 16])
    def test_row_out_of_range_is_named(self, row: int) -> None:
        with pytest.raises(ValueError, match=f"row {row} is not"):
            native.dequantize_rows(self.kind, self.good, 16, 256, np.array([row], np.int32))

    def test_inputs_of_another_width_are_refused(self) -> None:
        with pytest.raises(ValueError, match="x has 255 columns, the matrix 256"):
            native.matmul(self.kind, self.good, 16, 256, np.zeros((1, 255), np.float32), "")

    def test_unknown_isa_names_the_choices(self) -> None:
        with pytest.raises(ValueError, match=r"choose one of: .*portable"):
            native.matmul(self.kind, self.good, 16, 256, self.x, "sse9")

    def test_read_only_target_is_refused(self) -> None:
        target = self.good.copy()
        target.flags.writeable = False
        with pytest.raises((TypeError, ValueError)):
            native.pack(self.kind, np.zeros(16 * 144, np.uint8), 16, 256, target)
