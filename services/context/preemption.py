"""Who makes room: for a critical request others that can be computed again, the least severe and youngest;
for any request streams, the longest silent first, once nobody else will leave.

live ──SeqClose──▶ held ──writers released──▶ its blocks are free
  └── tokens and counters ──▶ waiting, in front of its severity ──room──▶ live, under a new sequence
"""

from __future__ import annotations

from collections.abc import Callable

from services.context.ledger import Ledger
from services.context.sequence import Sequence

CRITICAL = 3


def answering(ledger: Ledger) -> list[Sequence]:
    """The requests among the live sequences."""
    return [sequence for sequence in ledger.live.values() if sequence.kind == "request"]


def victims(ledger: Ledger, candidate: Sequence, again: Callable[[Sequence], bool]) -> list[Sequence]:
    """Whom to preempt for `candidate`, of those that can be computed `again`. Nobody when it would not help,
    or when what was closed already and is still held by a writer is enough."""
    leaving = list(ledger.held.values())
    requests = answering(ledger)
    able = [s for s in requests if s.severity < CRITICAL and not s.forked and again(s)]
    able.sort(key=lambda s: (s.severity, -s.started, -s.seq))
    for count in range(len(able) + 1):
        places = ledger.limits.max_sequences - len(requests) + count
        if places > 0 and ledger.room(candidate, leaving + able[:count]) >= 0:
            return able[:count]
    return []


def streams_in_the_way(ledger: Ledger, candidate: Sequence) -> list[Sequence]:
    """Streams whose end makes room for `candidate`. None when not even the end of all of them does."""
    able = sorted((s for s in ledger.live.values() if s.kind == "stream"), key=lambda s: s.used)
    for count in range(1, len(able) + 1):
        if ledger.room(candidate, able[:count]) >= 0:
            return able[:count]
    return []
