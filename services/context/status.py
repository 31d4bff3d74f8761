"""The answer to `ringline status`."""

from __future__ import annotations

import os
import time

from services.context.ledger import Ledger
from services.context.sequence import Sequence
from services.context.sessions import Sessions
from shared.bus.messages.status import CacheStatus, SequenceStatus, ServiceStatus, StatusReply
from shared.bus.server import Peer
from shared.kv import Segment


def status_reply(sessions: Sessions, segment: Segment, peers: list[Peer]) -> StatusReply:
    pool, cache = sessions.ledger.pool, sessions.ledger.cache
    context = ServiceStatus(role="context", pid=os.getpid(), alive=True, age_s=0.0, busy_s=0.0)
    return StatusReply(
        generation=segment.generation,
        pool_bytes=segment.spec.geometry.pool_bytes,
        kv=segment.spec.kv,
        blocks_total=pool.total,
        blocks_free=pool.free,
        blocks_cached=len(cache),
        blocks_pinned=sum(len(blocks) for blocks in sessions.ledger.pins.values()),
        blocks_peak=pool.peak,
        waiting=len(sessions.waiting),
        preempted=sessions.admitting.preempted,
        cache=cache_status(sessions.ledger),
        services=[context, *(_service(peer) for peer in peers if peer.role != "status")],
        sequences=[_sequence(sessions.ledger, sequence) for sequence in sessions.ledger.live.values()],
    )


def cache_status(ledger: Ledger) -> CacheStatus:
    counters = ledger.cache.counters
    return CacheStatus(
        hit_tokens=counters.hit_tokens,
        miss_tokens=counters.miss_tokens,
        hit_blocks=counters.hit_blocks,
        inserted_blocks=counters.inserted_blocks,
        evicted_blocks=counters.evicted_blocks,
        replaced_blocks=ledger.cow.replaced,
    )


def _service(peer: Peer) -> ServiceStatus:
    age = max(0.0, time.monotonic() - peer.last_seen)
    return ServiceStatus(
        role=peer.role, pid=peer.pid, alive=True, age_s=age, busy_s=peer.busy_s, note=peer.note
    )


def _sequence(ledger: Ledger, sequence: Sequence) -> SequenceStatus:
    return SequenceStatus(
        seq=sequence.seq,
        request_id=sequence.request_id,
        profile=sequence.profile,
        tokens=sequence.known,
        kv_len=sequence.kv_len,
        blocks=len(sequence.blocks),
        shared_blocks=sum(ledger.shared(block) for block in sequence.blocks),
        label=sequence.label,
    )
