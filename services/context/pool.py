"""Which blocks are free, promised or in use. K/V itself is none of context's business."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shared.native import BlockAllocator


class BlockPool:
    """Blocks with reference counts, and promises: a sequence is admitted only when the blocks it may still
    need are there, so that it never waits for memory half-way (nothing is preempted, nothing deadlocks)."""

    def __init__(self, allocator: BlockAllocator) -> None:
        self._allocator = allocator
        self._promised = 0
        self.peak = self.total - allocator.n_free  # most blocks in use at once

    @property
    def total(self) -> int:
        return self._allocator.n_blocks

    @property
    def free(self) -> int:
        return self._allocator.n_free

    @property
    def available(self) -> int:
        """Free and promised to nobody."""
        return self.free - self._promised

    def promise(self, count: int) -> None:
        if count > self.available:
            raise ValueError(f"{count} blocks promised, {self.available} are available")
        self._promised += count

    def forgive(self, count: int) -> None:
        """Take back a promise of `count` blocks that are no longer needed."""
        if count > self._promised:
            raise ValueError(f"{count} blocks forgiven, {self._promised} are promised")
        self._promised -= count

    def take(self, count: int) -> list[int]:
        """Blocks that were promised, each with one reference."""
        self.forgive(count)
        blocks = [self._allocator.allocate() for _ in range(count)]
        if -1 in blocks:
            raise RuntimeError("a promised block is not there: the allocator and its users disagree")
        self.peak = max(self.peak, self.total - self.free)
        return blocks

    def retain(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._allocator.retain(block)

    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._allocator.release(block)

    def rebuild(self, tables: Iterable[Iterable[int]]) -> None:
        """Make the counts of a newly created allocator say what `tables` say."""
        wanted = Counter(block for table in tables for block in table)
        everything = [self._allocator.allocate() for _ in range(self.total)]
        for block in everything:
            for _ in range(wanted[block] - 1):
                self._allocator.retain(block)
        self.release(block for block in everything if wanted[block] == 0)
        self.peak = self.total - self.free

    def check(self, tables: Iterable[Iterable[int]]) -> list[str]:
        """One line for each block that is not referenced exactly as often as `tables` say."""
        wanted = Counter(block for table in tables for block in table)
        return [
            f"block {block} has {found} references, the tables hold it {wanted[block]} times"
            for block in range(self.total)
            if (found := self._allocator.references(block)) != wanted[block]
        ]
