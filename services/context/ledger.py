"""The sequences, their blocks and their records, kept in step.

    open ──▶ live ──close──▶ held ──released──▶ remembered (finished: tokens are kept for replay)
                              │                     │ its slot is needed
                              └──(cancelled…)──▶ free ◀┘

Each change is in the record before anybody is told of it, and a block is free only after no record holds it.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.context.holds import Holds
from services.context.limits import Limits
from services.context.pool import BlockPool
from services.context.records import Record, RecordStore
from services.context.sequence import Sequence

REPLAYED = ("stop", "length")  # ends that are remembered; any other request may simply be sent again


class Ledger:
    """Owns `pool`, `store` and `holds`: nobody else changes them."""

    def __init__(self, limits: Limits, pool: BlockPool, store: RecordStore, holds: Holds) -> None:
        self.limits = limits
        self.pool = pool
        self.store = store
        self.holds = holds
        self.live: dict[int, Sequence] = {}
        self.held: dict[int, Sequence] = {}
        self.finished: dict[str, Sequence] = {}  # by request id, oldest first
        self.pins: dict[str, list[int]] = {}  # blocks of computed prefixes, by profile
        self._free_slots = list(range(store.slots))[::-1]

    # --- opening, growing, closing ---

    def can_open(self, worst_blocks: int) -> bool:
        """Whether a sequence that needs so many blocks of its own could be opened now."""
        return worst_blocks <= self.pool.available and self._has_slot()

    def open(self, sequence: Sequence, prefix: list[int]) -> None:
        """Make it live on top of the shared blocks `prefix`. `can_open` has said yes."""
        sequence.slot = self._take_slot()
        self.pool.promise(sequence.worst_blocks() - len(prefix))
        self.pool.retain(prefix)
        sequence.blocks = list(prefix)
        sequence.shared = len(prefix)
        self.grow(sequence)
        self.live[sequence.seq] = sequence
        self.save(sequence)

    def grow(self, sequence: Sequence) -> int:
        """Add the blocks of the next two commits; returns the first new table entry."""
        first = len(sequence.blocks)
        sequence.blocks += self.pool.take(sequence.missing_blocks(self.limits.chunk, self.limits.step))
        return first

    def save(self, sequence: Sequence) -> None:
        self.store.put(sequence.slot, _record(sequence), sequence.tokens)

    def close(self, sequence: Sequence, finish: str) -> None:
        """End it. Its blocks come back as soon as nobody can write into them."""
        self.pool.forgive(sequence.worst_blocks() - len(sequence.blocks))
        sequence.finish = finish
        self.save(sequence)
        del self.live[sequence.seq]
        self.held[sequence.seq] = sequence
        if finish in REPLAYED and sequence.request_id:
            self.finished[sequence.request_id] = sequence
        if not self.holds.hold(sequence.seq):
            self.let_go([sequence.seq])

    def let_go(self, sequences: list[int]) -> None:
        """Nobody writes into these closed sequences any more."""
        for seq in sequences:
            sequence = self.held.pop(seq)
            blocks, sequence.blocks = sequence.blocks, []
            if self.finished.get(sequence.request_id) is sequence:
                self.save(sequence)
            else:
                self._free(sequence)
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
        sequence.shared = len(blocks)
        self.pool.retain(blocks)
        self.pins[sequence.profile] = blocks
        self.save_pin(slot, sequence)
        return slot

    def save_pin(self, slot: int, sequence: Sequence) -> None:
        record = _record(sequence, kind="profile", blocks=self.pins[sequence.profile])
        self.store.put(slot, record, sequence.tokens)

    def unpin(self, profile: str, slot: int) -> None:
        self.store.clear(slot)
        self._free_slots.append(slot)
        self.pool.release(self.pins.pop(profile))

    # --- after a crash ---

    def adopt(self, sequence: Sequence) -> None:
        """Take over a sequence of an earlier owner. The counts of its blocks are right already."""
        self._free_slots.remove(sequence.slot)
        if not sequence.finish:
            self.live[sequence.seq] = sequence
            self.pool.promise(sequence.worst_blocks() - len(sequence.blocks))
            return
        if sequence.finish in REPLAYED and sequence.request_id:
            self.finished[sequence.request_id] = sequence
        self.held[sequence.seq] = sequence
        if not self.holds.hold(sequence.seq):
            self.let_go([sequence.seq])

    def adopt_pin(self, profile: str, blocks: list[int], slot: int) -> None:
        self._free_slots.remove(slot)
        self.pins[profile] = blocks

    # --- the whole ---

    def tables(self) -> Iterator[list[int]]:
        """Every list of blocks that holds references."""
        for group in (self.live, self.held):
            yield from (sequence.blocks for sequence in group.values())
        yield from self.pins.values()

    def check_integrity(self) -> list[str]:
        """What is wrong: every block must be free, or referenced exactly as often as tables and pins say."""
        return self.pool.check(self.tables())

    def _has_slot(self) -> bool:
        return bool(self._free_slots) or any(s.seq not in self.held for s in self.finished.values())

    def _take_slot(self) -> int:
        if not self._free_slots:
            oldest = next(name for name, s in self.finished.items() if s.seq not in self.held)
            self.forget(oldest)
        return self._free_slots.pop()

    def _free(self, sequence: Sequence) -> None:
        self.store.clear(sequence.slot)
        self._free_slots.append(sequence.slot)


def _record(sequence: Sequence, kind: str = "sequence", blocks: list[int] | None = None) -> Record:
    return Record.model_construct(
        kind=kind,
        seq=sequence.seq,
        request_id=sequence.request_id,
        profile=sequence.profile,
        severity=sequence.severity,
        sink=sequence.ring.sink,
        window=sequence.ring.window,
        ring=sequence.ring.capacity,
        n_tokens=len(sequence.tokens),
        prompt_len=sequence.prompt_len,
        max_tokens=sequence.max_tokens,
        stop_tokens=sequence.stop_tokens,
        kv_len=sequence.kv_len,
        draft_kv_len=sequence.draft_kv_len,
        epoch=sequence.epoch,
        blocks=sequence.blocks if blocks is None else blocks,
        shared=sequence.shared,
        cached_tokens=sequence.cached_tokens,
        passes=sequence.passes,
        drafted=sequence.drafted,
        accepted=sequence.accepted,
        finish=sequence.finish,
    )
