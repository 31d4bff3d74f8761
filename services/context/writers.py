"""Which processes may write into blocks, followed through joins, losses and deaths."""

from __future__ import annotations

from typing import Protocol

import structlog

from services.context.sessions import Sessions
from shared.bus.messages.fields import Message
from shared.bus.messages.sequences import SeqClose
from shared.kv.locks import Writer

_log = structlog.get_logger()


class Mapping(Protocol):
    """The owner's view of who maps the pool."""

    def writers(self) -> list[Writer]: ...
    def is_writing(self, writer: Writer) -> bool: ...


class Writers:
    """Joined writers, and lost ones whose process still maps the pool."""

    def __init__(self, sessions: Sessions, mapping: Mapping) -> None:
        self._sessions = sessions
        self._mapping = mapping
        self._lost: set[Writer] = set(mapping.writers())
        sessions.ledger.holds.writers |= self._lost

    def joined(self, writer: Writer) -> list[Message]:
        """What it has to be told: which closed sequences it must release, and a snapshot of each live one."""
        self._lost.discard(writer)
        ledger = self._sessions.ledger
        ledger.holds.writers.add(writer)
        closes = [SeqClose(seq=seq, reason="closed") for seq in ledger.holds.waiting_for(writer)]
        return [*closes, *(sequence.snapshot() for sequence in ledger.live.values())]

    def lost(self, writer: Writer) -> None:
        self._lost.add(writer)
        self.bury()

    def bury(self) -> None:
        """Forget lost writers that are dead; what was held for them comes back."""
        for writer in [writer for writer in self._lost if not self._mapping.is_writing(writer)]:
            self._lost.discard(writer)
            _log.info("writer gone", role=writer[0], pid=writer[1])
            self._let_go(self._sessions.ledger.holds.gone(writer))

    def released(self, writer: Writer, seq: int) -> None:
        self._let_go(self._sessions.ledger.holds.release(writer, seq))

    def _let_go(self, sequences: list[int]) -> None:
        if sequences:
            self._sessions.ledger.let_go(sequences)
            self._sessions.admit()
