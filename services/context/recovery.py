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
    pins = [sequence for sequence in found if sequence.slot in pinned]
    others = _newest([sequence for sequence in found if sequence.slot not in pinned])
    kept = _consistent(ledger, pins + sorted(others, key=lambda s: s.seq))
    for sequence in found:
        if sequence not in kept:
            if all(sequence.seq != other.seq for other in kept):
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
    beside = {"kind", "sink", "window", "ring", "n_tokens", "token_crc", "sampling"}
    fields = {**record.model_dump(exclude=beside), "sampling": record.sampling}
    ring = Ring(record.sink, record.window, record.ring)
    return record.kind, Sequence(ring=ring, tokens=tokens, slot=slot, started=now, used=now, **fields)


def _consistent(ledger: Ledger, sequences: list[Sequence]) -> list[Sequence]:
    """Those that make sense alone and together: what one may be writing, no other one may hold."""
    writing: set[int] = set()
    held: set[int] = set()
    kept = []
    for sequence in sequences:
        if not _plausible(ledger, sequence):
            continue
        blocks, own = set(sequence.blocks), _own(ledger, sequence)
        if not blocks & writing and not own & held:
            kept.append(sequence)
            writing |= own
            held |= blocks
    return kept


def _own(ledger: Ledger, sequence: Sequence) -> set[int]:
    """Blocks that the next two commits may write into."""
    ahead = sequence.ahead(ledger.limits.chunk, ledger.limits.step)
    entries = sequence.ring.entries(sequence.kv_len, ahead)
    return {sequence.blocks[entry] for entry in entries if entry < len(sequence.blocks)}


def _newest(found: list[Sequence]) -> list[Sequence]:
    """One record of each sequence: a stream that was moving to another slot has two."""
    newest: dict[int, Sequence] = {}
    for sequence in sorted(found, key=lambda s: (s.epoch, s.known, s.first)):
        newest[sequence.seq] = sequence
    return list(newest.values())


def _plausible(ledger: Ledger, sequence: Sequence) -> bool:
    """What every record of this program and this configuration fulfils."""
    blocks, ring, limits = sequence.blocks, sequence.ring, ledger.limits
    return (
        len(set(blocks)) == len(blocks)
        and all(block < ledger.pool.total for block in blocks)
        and len(blocks) <= max(sequence.worst_blocks(), ring.sink_blocks)
        and ring == limits.ring(ring.sink, ring.window)
        and sequence.first <= sequence.kv_len
        and max(sequence.kv_len, sequence.draft_kv_len, sequence.prompt_len) <= sequence.known <= sequence.end
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
        if sequence.kind == "prefix":
            profile = Profile(sequence.profile, list(sequence.tokens), sequence.ring, computing=sequence)
            sessions.profiles.adopt(profile)
