"""Positions, slots and what a commit may write, against the formulas written down once more in Python."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.native import KvPool, SequenceView

PLANE = (1, 1, 32)
N_BLOCKS = 64


@pytest.fixture(scope="module")
def pool() -> KvPool:
    return KvPool(mmap.mmap(-1, N_BLOCKS * KvPool.block_bytes([PLANE])), N_BLOCKS, [PLANE])


def slot_of(position: int, sink: int, ring: int) -> int:
    ring_start = -(-sink // 16) * 16
    return position if position < sink else ring_start + (position - sink) % ring


@given(
    sink=st.integers(0, 70),
    window=st.integers(1, 80),
    spare=st.integers(0, 5),
    length=st.integers(0, 400),
    holes=st.sets(st.integers(0, 14), max_size=4),
)
def test_covered_is_what_blocks_and_window_allow(
    pool: KvPool, sink: int, window: int, spare: int, length: int, holes: set[int]
) -> None:
    """covered() stops at the first hole, or where a commit would overwrite a visible position."""
    ring = (-(-window // 16) + spare) * 16
    view = SequenceView(pool, 0, sink, ring, window)
    entries = (-(-sink // 16) * 16 + ring) // 16
    table = np.array([-1 if i in holes else i for i in range(entries)], np.int32)
    view.set_blocks(0, table)
    view.length = length
    oldest_visible = max(sink, length - window + 1)
    expected = length
    while expected - ring < oldest_visible and table[slot_of(expected, sink, ring) // 16] >= 0:
        expected += 1
    assert view.covered() == expected


def test_blocks_are_set_from_any_entry(pool: KvPool) -> None:
    view = SequenceView(pool, 0, 20, 64, 32)
    view.set_blocks(0, np.array([0, 1, 2], np.int32))
    assert view.covered() == 20 + 16  # the sink's second block ends with padding
    view.set_blocks(3, np.array([3, 4], np.int32))
    assert view.covered() == 20 + 48
    view.set_blocks(0, np.array([-1], np.int32))
    assert view.covered() == 0


def test_far_positions_have_slots(pool: KvPool) -> None:
    view = SequenceView(pool, 0, 4, 64, 32)
    view.set_blocks(0, np.arange(5, dtype=np.int32))
    view.length = 2**52
    assert view.covered() == 2**52 + 64 - 31
    with pytest.raises(ValueError, match=r"2\^53"):
        view.length = 2**53


@pytest.mark.parametrize(
    ("plane", "sink", "ring", "window", "message"),
    [
        (1, 0, 64, 32, "plane 1 does not exist"),
        (-1, 0, 64, 32, "plane -1 does not exist"),
        (0, -1, 64, 32, "sink must be >= 0"),
        (0, 0, 64, 0, "window >= 1"),
        (0, 0, 60, 32, "multiple of 16"),
        (0, 0, 16, 17, "holds the window of 17"),
        (0, 1 << 17, 16, 16, "sink . window"),
        (0, 0, 1 << 25, 16, "ring must be"),
    ],
)
def test_a_geometry_that_cannot_work_is_refused(
    pool: KvPool, plane: int, sink: int, ring: int, window: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceView(pool, plane, sink, ring, window)


@pytest.mark.parametrize(
    ("first", "blocks", "message"),
    [
        (0, [N_BLOCKS], "does not exist"),
        (0, [-2], "does not exist"),
        (4, [0], "this sequence has 4"),
        (-1, [0], "this sequence has 4"),
        (3, [0, 1], "this sequence has 4"),
    ],
)
def test_a_table_out_of_range_is_refused(pool: KvPool, first: int, blocks: list[int], message: str) -> None:
    view = SequenceView(pool, 0, 0, 64, 32)
    with pytest.raises(ValueError, match=message):
        view.set_blocks(first, np.array(blocks, np.int32))
    assert view.covered() == 0


def test_other_types_than_int32_are_refused(pool: KvPool) -> None:
    view = SequenceView(pool, 0, 0, 64, 32)
    others: list[Any] = [np.array([0]), np.array([0.0]), np.array([[0]], np.int32), [0], None]
    for blocks in others:
        with pytest.raises(TypeError):
            view.set_blocks(0, blocks)
