"""After `kill -9`: sessions from the records that the dead owner left.

Nothing of the allocator is trusted; its counts are made anew from the tables of records that fit together.
A record that contradicts another is dropped: its request is sent again by the gateway and computed again.
"""

from __future__ import annotations

import structlog

from services.context.ledger import Ledger
from services.context.profiles import Profile
from services.context.records import Record
from services.context.sequence import Ring, Sequence
from services.context.sessions import Sessions

_log = structlog.get_logger()


def recover(sessions: Sessions, now: float) -> int:
    """Fill fresh `sessions` from its ledger's store; returns the largest sequence id found.

    `ledger.holds.writers` already names the processes that still map the pool: what was closed waits for
    them."""
    ledger = sessions.ledger
    loaded = {slot: _sequence(slot, now, *content) for slot, content in ledger.store.load().items()}
    pinned = {slot for slot, (kind, _) in loaded.items() if kind == "profile"}
    found = [sequence for _, sequence in loaded.values()]
    # Pins first: they decide what is shared. Then in order of age, so that a contradiction costs the younger.
    kept = _consistent(ledger, sorted(found, key=lambda s: (s.slot not in pinned, s.seq)))
    for sequence in found:
        if sequence not in kept:
            _log.warning("a session record contradicts others and was dropped", seq=sequence.seq)
            ledger.store.clear(sequence.slot)
    ledger.pool.rebuild(sequence.blocks for sequence in kept)
    for sequence in kept:
        if sequence.slot in pinned:
            _adopt_pin(sessions, sequence)
        else:
            ledger.adopt(sequence)
    _resume_prefixes(sessions)
    _log.info(
        "sessions recovered", live=len(ledger.live), finished=len(ledger.finished), pinned=len(ledger.pins)
    )
    return max((sequence.seq for sequence in found), default=0)


def _sequence(slot: int, now: float, record: Record, tokens: list[int]) -> tuple[str, Sequence]:
    fields = record.model_dump(exclude={"kind", "sink", "window", "ring", "n_tokens", "token_crc"})
    ring = Ring(record.sink, record.window, record.ring)
    return record.kind, Sequence(ring=ring, tokens=tokens, slot=slot, started=now, **fields)


def _consistent(ledger: Ledger, sequences: list[Sequence]) -> list[Sequence]:
    """Those that make sense alone and together: a block is one sequence's own, or shared, never both."""
    own: set[int] = set()
    shared: set[int] = set()
    kept = []
    for sequence in sequences:
        head, tail = set(sequence.blocks[: sequence.shared]), set(sequence.blocks[sequence.shared :])
        if _plausible(ledger, sequence) and not head & own and not tail & (own | shared):
            kept.append(sequence)
            own |= tail
            shared |= head
    return kept


def _plausible(ledger: Ledger, sequence: Sequence) -> bool:
    """What every record of this program and this configuration fulfils."""
    blocks, ring, limits = sequence.blocks, sequence.ring, ledger.limits
    n = len(sequence.tokens)
    return (
        len(set(blocks)) == len(blocks)
        and all(block < ledger.pool.total for block in blocks)
        and sequence.shared <= max(len(blocks), ring.sink_blocks)
        and len(blocks) <= sequence.worst_blocks()
        and ring == limits.ring(ring.sink, ring.window)
        and max(sequence.kv_len, sequence.draft_kv_len, sequence.prompt_len) <= n <= sequence.end
        and (bool(sequence.finish) or sequence.covers(sequence.kv_len))
        and all(token < limits.n_vocab for token in sequence.tokens)
    )


def _adopt_pin(sessions: Sessions, sequence: Sequence) -> None:
    sessions.ledger.adopt_pin(sequence.profile, sequence.blocks, sequence.slot)
    profile = Profile(sequence.profile, sequence.tokens, sequence.ring)
    profile.prefix, profile.pin_slot = sequence, sequence.slot
    sessions.profiles.adopt(profile)


def _resume_prefixes(sessions: Sessions) -> None:
    """Prefixes that were being computed go on."""
    for sequence in sessions.ledger.live.values():
        if not sequence.request_id:
            profile = Profile(sequence.profile, list(sequence.tokens), sequence.ring, computing=sequence)
            sessions.profiles.adopt(profile)
