"""The answer to `ringline status`."""

from __future__ import annotations

import os
import time

from services.context.sequence import Sequence
from services.context.sessions import Sessions
from shared.bus.messages import SequenceStatus, ServiceStatus, StatusReply
from shared.bus.server import Peer
from shared.kv import Segment


def status_reply(sessions: Sessions, segment: Segment, peers: list[Peer]) -> StatusReply:
    pool = sessions.ledger.pool
    context = ServiceStatus(role="context", pid=os.getpid(), alive=True, age_s=0.0, busy_s=0.0)
    return StatusReply(
        generation=segment.generation,
        pool_bytes=segment.spec.geometry.pool_bytes,
        blocks_total=pool.total,
        blocks_free=pool.free,
        blocks_pinned=sum(len(blocks) for blocks in sessions.ledger.pins.values()),
        blocks_peak=pool.peak,
        waiting=len(sessions.waiting),
        services=[context, *(_service(peer) for peer in peers if peer.role != "status")],
        sequences=[_sequence(sequence) for sequence in sessions.ledger.live.values()],
    )


def _service(peer: Peer) -> ServiceStatus:
    age = max(0.0, time.monotonic() - peer.last_seen)
    return ServiceStatus(
        role=peer.role, pid=peer.pid, alive=True, age_s=age, busy_s=peer.busy_s, note=peer.note
    )


def _sequence(sequence: Sequence) -> SequenceStatus:
    return SequenceStatus(
        seq=sequence.seq,
        request_id=sequence.request_id,
        profile=sequence.profile,
        tokens=len(sequence.tokens),
        kv_len=sequence.kv_len,
        blocks=len(sequence.blocks),
        shared_blocks=sequence.shared,
        label=sequence.label,
    )
