"""Blocks of closed sequences, held until every process that may still write into them has let go.

A verifier in the middle of a pass does not see SeqClose before the pass ends, and commits until then. Its
process may also be stopped, cut off and thought lost, and then wake up. So a block goes back only when each
writer has answered SeqClose with SeqReleased, or is provably dead (its file lock is gone).
"""

from __future__ import annotations

from shared.kv.locks import Writer


class Holds:
    """`writers`: processes that may know block tables. A held sequence waits for those it was known to."""

    def __init__(self) -> None:
        self.writers: set[Writer] = set()
        self._waiting: dict[int, set[Writer]] = {}

    def hold(self, seq: int) -> bool:
        """The sequence was closed. False when there is nobody to wait for."""
        if self.writers:
            self._waiting[seq] = set(self.writers)
        return bool(self.writers)

    def waiting_for(self, writer: Writer) -> list[int]:
        """Closed sequences that this writer has not released."""
        return [seq for seq, writers in self._waiting.items() if writer in writers]

    def release(self, writer: Writer, seq: int) -> list[int]:
        """The writer has let go of `seq`. Returns the sequences that nobody holds any more."""
        waiting = self._waiting.get(seq)
        if waiting is None:
            return []
        waiting.discard(writer)
        if waiting:
            return []
        del self._waiting[seq]
        return [seq]

    def gone(self, writer: Writer) -> list[int]:
        """The writer is dead. Returns the sequences that nobody holds any more."""
        self.writers.discard(writer)
        return [free for seq in self.waiting_for(writer) for free in self.release(writer, seq)]
