"""The sequences, their blocks and their records, kept in step.

    open ──▶ live ──close──▶ held ──released──▶ remembered (finished: tokens are kept for replay)
                              │                     │ its slot is needed
                              └──(cancelled…)──▶ free ◀┘

    block of a table ──computed, full──▶ in the cache too ──held by nobody else──▶ evicted for want of room

Each change is in the record before anybody is told of it, and a block is free only after no record holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from services.context import chains
from services.context.cow import CopyOnWrite
from services.context.holds import Holds
from services.context.limits import Limits
from services.context.pool import BlockPool
from services.context.prefix_cache import PrefixCache
from services.context.records import RecordStore, record_of
from services.context.room import available
from services.context.sequence import Sequence

REPLAYED = ("stop", "length", "deadline")  # ends that are remembered; any other request may be sent again


class Ledger:
    """Owns `pool`, `cache`, `store` and `holds`: nobody else changes them. `copy` copies a block's K/V."""

    def __init__(
        self,
        limits: Limits,
        pool: BlockPool,
        store: RecordStore,
        holds: Holds,
        copy: Callable[[int, int], None],
    ) -> None:
        self.limits = limits
        self.pool = pool
        self.cache = PrefixCache(pool)
        self.cow = CopyOnWrite(pool, self.cache, copy)
        self.store = store
        self.holds = holds
        self.live: dict[int, Sequence] = {}
        self.held: dict[int, Sequence] = {}
        self.finished: dict[str, Sequence] = {}  # by request id, oldest first
        self.pins: dict[str, list[int]] = {}  # blocks of computed prefixes, by profile
        self._free_slots = list(range(store.slots))[::-1]

    # --- opening, growing, closing ---

    def room(self, sequence: Sequence, leaving: Collection[Sequence] = ()) -> int:
        """Blocks promised to nobody if `sequence` were opened with the table it has now, and `leaving` were
        gone; below 0: it cannot be."""
        change = Counter(sequence.blocks)
        for gone in leaving:
            change.subtract(gone.blocks)
            change.subtract(block for _, block in gone.retired)
        leaves = {gone.seq for gone in leaving}
        live = [other for other in self.live.values() if other.seq not in leaves]
        return available(self.pool, self.cache, [*live, sequence], self.cow.retired, change)

    def available(self) -> int:
        """Blocks promised to nobody; never below 0."""
        return available(self.pool, self.cache, self.live.values(), self.cow.retired, Counter())

    def can_open(self, sequence: Sequence) -> bool:
        return self.has_slot() and self.room(sequence) >= 0

    def open(self, sequence: Sequence) -> None:
        """Make it live on top of the shared blocks in its table. `can_open` has said yes."""
        sequence.slot = self._take_slot()
        self.pool.retain(sequence.blocks)
        self.live[sequence.seq] = sequence
        self.grow(sequence)
        self.save(sequence)

    def grow(self, sequence: Sequence) -> int:
        """It has moved: make its table ready for the next two commits, and enter what is computed in the
        cache. Returns the lowest table entry that has changed."""
        ahead = sequence.ahead(self.limits.chunk, self.limits.step)
        self.cow.acknowledge(sequence)
        lowest = self.cow.grow(sequence, ahead)
        chains.extend(self.cache, sequence, ahead)
        return lowest

    def save(self, sequence: Sequence) -> None:
        self.store.put(sequence.slot, record_of(sequence), sequence.tokens)

    def forget_tokens(self, sequence: Sequence, keep: int) -> None:
        """Only the last `keep` known tokens stay. The record moves to another slot: the new one is whole
        before the old one goes."""
        old, sequence.slot = sequence.slot, self._take_slot()
        sequence.first = sequence.known - keep
        sequence.tokens = sequence.tokens[-keep:]
        self.save(sequence)
        self.store.clear(old)
        self._free_slots.append(old)

    def close(self, sequence: Sequence, finish: str) -> None:
        """End it. Its blocks come back as soon as nobody can write into them."""
        sequence.finish = finish
        self.save(sequence)
        del self.live[sequence.seq]
        self._hold(sequence)

    def _hold(self, sequence: Sequence) -> None:
        self.held[sequence.seq] = sequence
        if sequence.finish in REPLAYED and sequence.request_id:
            self.finished[sequence.request_id] = sequence
        if not self.holds.hold(sequence.seq):
            self.let_go([sequence.seq])

    def let_go(self, sequences: list[int]) -> None:
        """Nobody writes into these closed sequences any more."""
        for seq in sequences:
            sequence = self.held.pop(seq)
            self.cache.touch(reversed(sequence.blocks))
            blocks, sequence.blocks = sequence.blocks, []
            if self.finished.get(sequence.request_id) is sequence:
                self.save(sequence)
            else:
                self._free(sequence)
            self.cow.end(sequence)
            self.pool.release(blocks)

    def forget(self, request_id: str) -> None:
        """A finished request whose id is used anew."""
        sequence = self.finished.pop(request_id)
        if sequence.seq not in self.held:
            self._free(sequence)

    # --- pinned prefixes ---

    def pin(self, sequence: Sequence) -> int:
        """Keep a computed prefix for its profile, beyond the sequence's end; returns the slot of its
        record."""
        slot = self._take_slot()
        blocks = sequence.blocks[: sequence.ring.sink_blocks]
        self.pool.retain(blocks)
        self.pins[sequence.profile] = blocks
        self.save_pin(slot, sequence)
        return slot

    def save_pin(self, slot: int, sequence: Sequence) -> None:
        record = record_of(sequence, kind="profile", blocks=self.pins[sequence.profile])
        self.store.put(slot, record, sequence.tokens)

    def unpin(self, profile: str, slot: int) -> None:
        self.store.clear(slot)
        self._free_slots.append(slot)
        self.pool.release(self.pins.pop(profile))

    # --- after a crash ---

    def adopt(self, sequence: Sequence) -> None:
        """Take over a sequence of an earlier owner. The counts of its blocks are right already."""
        self._free_slots.remove(sequence.slot)
        if sequence.finish:
            self._hold(sequence)
            return
        self.live[sequence.seq] = sequence
        chains.extend(self.cache, sequence, sequence.ahead(self.limits.chunk, self.limits.step))

    def adopt_pin(self, profile: str, blocks: list[int], slot: int) -> None:
        self._free_slots.remove(slot)
        self.pins[profile] = blocks

    # --- the whole ---

    def shared(self, block: int) -> bool:
        """Whether more than one table, or a table and a pin, hold this block."""
        return self.pool.references(block) - self.cow.retired[block] - (block in self.cache) > 1

    def tables(self) -> Iterator[list[int]]:
        """Every list of blocks that holds references."""
        for group in (self.live, self.held):
            yield from (sequence.blocks for sequence in group.values())
            yield from ([block for _, block in sequence.retired] for sequence in group.values())
        yield from self.pins.values()
        yield self.cache.blocks

    def check_integrity(self) -> list[str]:
        """What is wrong: every block must be free, or referenced exactly as often as tables, pins
        and cache say."""
        return self.pool.check(self.tables())

    def has_slot(self) -> bool:
        return bool(self._free_slots) or any(s.seq not in self.held for s in self.finished.values())

    def _take_slot(self) -> int:
        if not self._free_slots:
            oldest = next(name for name, s in self.finished.items() if s.seq not in self.held)
            self.forget(oldest)
        return self._free_slots.pop()

    def _free(self, sequence: Sequence) -> None:
        self.store.clear(sequence.slot)
        self._free_slots.append(sequence.slot)
