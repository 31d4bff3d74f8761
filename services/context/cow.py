"""Copy-on-write: what the next two commits may write into is one sequence's alone.

Whenever a sequence moves, its table is made ready for [kv_len, ahead): missing entries get a block, shared
ones a copy. What the verifier may be writing meanwhile is never touched by that:

    positions    kv_len before          kv_len now            ahead before          ahead now
                 │   commit just taken  │  commit under way,  │                     │
                 ├──────────────────────┼─ perhaps half ──────┤                     │
    own blocks   ████████████████████████████████████████████████ shared or missing │
                                                              └── taken or copied ──┘

Only the one commit that is not acknowledged can be under way, and it ends at the old `ahead`, in blocks that
were made the sequence's own before. They stay so: a block is entered in the prefix cache when it is full and
behind every write, and a stream is forked when nothing of it is under way. So a block that is copied here is
written by nobody at that moment, and the positions in it that are seen by anybody were complete long ago.

A pass that is running reads through the table of one state earlier, and so perhaps the block that was copied
from. It is *retired*: the sequence keeps its reference until it is two epochs further, when no pass with
the old table can be running any more. Until then nobody gets that block anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from services.context.pool import BlockPool
from services.context.prefix_cache import PrefixCache
from services.context.sequence import Sequence


class CopyOnWrite:
    """`copy(source, target)` copies a block's K/V. `retired`: references that only delay the release."""

    def __init__(self, pool: BlockPool, cache: PrefixCache, copy: Callable[[int, int], None]) -> None:
        self._pool = pool
        self._cache = cache
        self.copy = copy
        self.replaced = 0  # shared blocks, since start
        self.retired: Counter[int] = Counter()

    def grow(self, sequence: Sequence, ahead: int) -> int:
        """Own every block of [kv_len, ahead); returns the lowest table entry that has changed."""
        lowest = len(sequence.blocks)
        for entry in sequence.ring.entries(sequence.kv_len, ahead):
            if entry == len(sequence.blocks):
                sequence.blocks.append(self._take())
            elif self._own(sequence, entry):
                lowest = min(lowest, entry)
        return lowest

    def acknowledge(self, sequence: Sequence) -> None:
        """Release what no running pass can be reading any more."""
        idle = sequence.kind == "stream" and sequence.pending == 0
        done = [block for epoch, block in sequence.retired if idle or sequence.epoch >= epoch + 2]
        sequence.retired = sequence.retired[len(done) :]
        self._release(done)

    def end(self, sequence: Sequence) -> None:
        """Nobody reads or writes it any more."""
        retired, sequence.retired = [block for _, block in sequence.retired], []
        self._release(retired)

    def _own(self, sequence: Sequence, entry: int) -> bool:
        """Whether the entry has another block now."""
        block = sequence.blocks[entry]
        cached = block in self._cache
        if self._pool.references(block) - self.retired[block] - cached > 1:
            self._replace(sequence, entry)
            return True
        if cached:
            self._cache.drop(block)
        return False

    def _replace(self, sequence: Sequence, entry: int) -> None:
        old, new = sequence.blocks[entry], self._take()
        if sequence.ring.shows(entry, sequence.kv_len):
            self.copy(old, new)
        self.replaced += 1
        sequence.blocks[entry] = new
        sequence.retired.append((sequence.epoch, old))
        self.retired[old] += 1

    def _take(self) -> int:
        block = self._pool.take()
        if block is None and self._cache.evict():
            block = self._pool.take()
        if block is None:
            raise RuntimeError("a promised block is not there: the allocator and its users disagree")
        return block

    def _release(self, blocks: list[int]) -> None:
        self.retired -= Counter(blocks)
        self._pool.release(blocks)
