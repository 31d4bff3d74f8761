"""Blocks with reference counts. Whose they are is the ledger's business, K/V itself the engine's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shared.native import BlockAllocator


class BlockPool:
    def __init__(self, allocator: BlockAllocator) -> None:
        self._allocator = allocator
        self.peak = self.total - allocator.n_free  # most blocks in use at once

    @property
    def total(self) -> int:
        return self._allocator.n_blocks

    @property
    def free(self) -> int:
        return self._allocator.n_free

    def references(self, block: int) -> int:
        return self._allocator.references(block)

    def take(self) -> int | None:
        """A free block with one reference; None when there is none."""
        block = self._allocator.allocate()
        if block < 0:
            return None
        self.peak = max(self.peak, self.total - self.free)
        return block

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
