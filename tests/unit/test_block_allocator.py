"""Blocks are handed out once, counted exactly, and survive the death of whoever held the buffer."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.native import BlockAllocator, KvPool

OPERATIONS = st.lists(st.tuples(st.sampled_from(["allocate", "retain", "release"]), st.integers(0, 200)))


def new_allocator(n_blocks: int) -> BlockAllocator:
    return BlockAllocator(bytearray(BlockAllocator.bytes_needed(n_blocks)), n_blocks, True)


@given(n_blocks=st.integers(1, 150), operations=OPERATIONS)
def test_counts_follow_a_plain_model(n_blocks: int, operations: list[tuple[str, int]]) -> None:
    """Any sequence of operations leaves the counts a dictionary would have; errors change nothing."""
    allocator, counts = new_allocator(n_blocks), dict.fromkeys(range(n_blocks), 0)
    for name, block in operations:
        if name == "allocate":
            free = [b for b, count in counts.items() if count == 0]
            got = allocator.allocate()
            assert got == (free[0] if free else -1)
            if free:
                counts[got] = 1
        elif counts.get(block, 0) == 0:
            with pytest.raises(ValueError, match=f"block {block} "):
                getattr(allocator, name)(block)
        else:
            counts[block] += 1 if name == "retain" else -1
            assert getattr(allocator, name)(block) == counts[block]
    assert [allocator.references(b) for b in range(n_blocks)] == list(counts.values())
    assert allocator.n_free == sum(count == 0 for count in counts.values())


@pytest.mark.parametrize("block", [-1, 10, 2**31 - 1])
def test_a_block_out_of_range_is_refused(block: int) -> None:
    allocator = new_allocator(10)
    for operation in (allocator.retain, allocator.release, allocator.references):
        with pytest.raises(ValueError, match="does not exist"):
            operation(block)


def test_attaching_finds_what_was_there() -> None:
    """A second allocator over the same buffer sees the counts and goes on."""
    buffer = bytearray(BlockAllocator.bytes_needed(70))
    first = BlockAllocator(buffer, 70, True)
    held = [first.allocate() for _ in range(66)]
    first.retain(held[3])
    second = BlockAllocator(buffer, 70, False)
    assert second.n_free == 4
    assert second.references(held[3]) == 2
    assert [second.allocate() for _ in range(5)] == [66, 67, 68, 69, -1]


def test_attaching_repairs_a_bitmap_that_lost_a_block() -> None:
    """Killed between taking a bit and counting the block: the block is free again after attaching."""
    buffer = bytearray(BlockAllocator.bytes_needed(64))
    BlockAllocator(buffer, 64, True)
    buffer[8:16] = bytes(8)  # the bitmap says that nothing is free
    assert BlockAllocator(buffer, 64, False).allocate() == 0


def test_a_foreign_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="does not hold the counts of 8 blocks"):
        BlockAllocator(bytearray(BlockAllocator.bytes_needed(8)), 8, False)
    buffer = bytearray(BlockAllocator.bytes_needed(8))
    BlockAllocator(buffer, 8, True)
    with pytest.raises(ValueError, match="does not hold the counts of 7 blocks"):
        BlockAllocator(buffer, 7, False)
    with pytest.raises(ValueError, match="the buffer has 4"):
        BlockAllocator(bytearray(4), 8, True)
    with pytest.raises(TypeError):
        BlockAllocator(bytes(4096), 8, True)  # not writable


def test_processes_never_get_the_same_block() -> None:
    """Four processes allocate from one shared buffer at once until it is empty."""
    n_blocks, n_processes = 2000, 4
    shared = mmap.mmap(-1, BlockAllocator.bytes_needed(n_blocks))
    taken = mmap.mmap(-1, n_processes * n_blocks)
    BlockAllocator(shared, n_blocks, True)
    children = []
    for index in range(n_processes):
        pid = os.fork()
        if pid == 0:
            allocator = BlockAllocator(shared, n_blocks, False)
            while (block := allocator.allocate()) >= 0:
                taken[index * n_blocks + block] = 1
            os._exit(0)
        children.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    per_block = np.frombuffer(taken[:], np.uint8).reshape(n_processes, n_blocks).sum(0)
    np.testing.assert_array_equal(per_block, np.ones(n_blocks))


def test_a_pool_copies_blocks_and_keeps_its_buffer() -> None:
    """copy_block moves every plane's bytes; an mmap stays open for as long as the pool lives."""
    planes = [(2, 1, 32), (1, 3, 64)]
    size = KvPool.block_bytes(planes)
    assert size == sum(layers * 2 * heads * 16 * dim * 2 for layers, heads, dim in planes)
    memory = mmap.mmap(-1, 3 * size)
    pool = KvPool(memory, 3, planes)
    memory[:size] = os.urandom(size)
    pool.copy_block(0, 2)
    assert memory[2 * size : 3 * size] == memory[:size]
    assert memory[size : 2 * size] == bytes(size)
    with pytest.raises(ValueError, match="blocks 0 to 2"):
        pool.copy_block(0, 3)
    with pytest.raises(BufferError):
        memory.close()
    del pool
    memory.close()


@pytest.mark.parametrize(
    ("plane", "f16_kib", "int8_kib"), [((28, 2, 128), 28, 14.4375), ((24, 2, 64), 12, 6.375)]
)
def test_bytes_of_a_token(plane: tuple[int, int, int], f16_kib: float, int8_kib: float) -> None:
    """Qwen2.5 1.5B and 0.5B: int8 has one byte a number and four a vector."""
    assert KvPool.block_bytes([plane]) == KvPool.block_bytes([plane], "f16") == f16_kib * 1024 * 16
    assert KvPool.block_bytes([plane], "int8") == int8_kib * 1024 * 16


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'f8' is neither f16 nor int8"):
        KvPool.block_bytes([(1, 2, 32)], "f8")


@pytest.mark.parametrize("planes", [[], [(0, 1, 32)], [(1, 1, 24)], [(1, -1, 32)], [(1, 1, 1 << 20)]])
def test_a_geometry_without_kernels_is_refused(planes: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValueError, match=r"plane|geometry"):
        KvPool.block_bytes(planes)


def test_a_pool_larger_than_its_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 16384 bytes, the buffer has 16383"):
        KvPool(bytearray(16383), 4, [(1, 2, 32)])
