"""The answer to `ringline pool`: whose the blocks are."""

from __future__ import annotations

from collections import Counter

from services.context.ledger import Ledger
from services.context.sequence import Sequence
from services.context.sessions import Sessions
from services.context.status import cache_status
from shared.bus.messages.status import PoolReply, PoolSequence
from shared.kv import Segment, describe_plane


def pool_reply(sessions: Sessions, segment: Segment) -> PoolReply:
    ledger, spec = sessions.ledger, segment.spec
    kinds = Counter(_kind(ledger, block) for block in range(ledger.pool.total))
    return PoolReply(
        generation=segment.generation,
        planes=[describe_plane(plane, spec.kv) for plane in spec.planes],
        block_bytes=spec.block_bytes,
        blocks_total=ledger.pool.total,
        blocks_free=kinds["free"],
        blocks_cached=kinds["cached"],
        blocks_pinned=kinds["pinned"],
        blocks_private=kinds["private"],
        blocks_shared=kinds["shared"],
        blocks_promised=max(0, kinds["free"] + kinds["cached"] - ledger.available()),
        cache=cache_status(ledger),
        sequences=[*_prefixes(sessions), *(_row(ledger, s) for s in ledger.live.values())],
    )


def _kind(ledger: Ledger, block: int) -> str:
    """Each block counts once: pinned before shared, shared before private."""
    references = ledger.pool.references(block)
    if references == 0:
        return "free"
    if references == 1 and block in ledger.cache:
        return "cached"
    if any(block in pin for pin in ledger.pins.values()):
        return "pinned"
    return "shared" if ledger.shared(block) else "private"


def _prefixes(sessions: Sessions) -> list[PoolSequence]:
    ledger = sessions.ledger
    rows = []
    for profile in sessions.profiles.all():
        if profile.prefix is not None:
            row = _row(ledger, profile.prefix)
            pin = ledger.pins[profile.name]
            shares = sum(ledger.shared(block) for block in pin)
            rows.append(row.model_copy(update={"blocks": len(pin), "shares": shares}))
    return rows


def _row(ledger: Ledger, sequence: Sequence) -> PoolSequence:
    ring = sequence.ring
    return PoolSequence(
        seq=sequence.seq,
        kind=sequence.kind,
        name=sequence.request_id or sequence.stream or sequence.profile,
        profile=sequence.profile,
        known=sequence.known,
        kv_len=sequence.kv_len,
        sink=ring.sink,
        window=ring.window,
        ring=ring.capacity,
        ring_position=max(0, sequence.kv_len - ring.sink) % ring.capacity,
        blocks=len(sequence.blocks),
        shares=sum(ledger.shared(block) for block in sequence.blocks),
    )
