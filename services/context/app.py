"""The context service: the files, the bus, and the loop between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from services.context.holds import Holds
from services.context.ledger import Ledger
from services.context.limits import Limits
from services.context.models import HelloCheck, Pair, choose_pair
from services.context.own_files import OwnFiles
from services.context.pool import BlockPool
from services.context.protocol import Protocol
from services.context.records import RecordStore
from services.context.recovery import recover
from services.context.sessions import Sessions
from services.context.writers import Writers
from shared.bus.endpoints import Endpoints, socket_file
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Role
from shared.bus.server import BusServer
from shared.config.errors import RinglineError
from shared.config.load import config_hash
from shared.config.settings import Settings
from shared.kv import ControlSpec, KvGeometry, Segment, open_segment
from shared.model.open import ModelInfo, read_info
from shared.native import BlockAllocator

_POLL_S = 0.5
_LOST_CHECK_S = 1.0
_INTEGRITY_S = 10.0
_SEQUENCE_IDS = 1 << 52  # far below what a message can carry, whatever a damaged kv.ctl says

_log = structlog.get_logger()


def run(settings: Settings, stop: threading.Event) -> int:
    """Serve until `stop` is set; then nothing is left in shared memory."""

    def info(name: str) -> ModelInfo:
        return read_info(name, settings.paths)

    return serve(settings, choose_pair(settings, info), stop)


def serve(settings: Settings, pair: Pair, stop: threading.Event) -> int:
    """`run` with the models' facts given."""
    spec, limits = describe(settings, pair)
    endpoints = Endpoints.of(settings.paths)
    segment = open_segment(settings.paths.memory, spec)
    check = HelloCheck(pair, config_hash(settings), settings.context.kv)
    try:
        server = BusServer(endpoints, time.monotonic_ns(), segment.generation, check)
    except RinglineError:
        segment.close()
        raise
    try:
        _loop(server, segment, limits, OwnFiles([*segment.files, socket_file(endpoints.control)]), stop)
    finally:
        server.close()
    # Not after an error: then the sessions stay for the next start, as after kill -9.
    segment.close()
    return 0


def describe(settings: Settings, pair: Pair) -> tuple[ControlSpec, Limits]:
    """The files' description and the plant's limits. RinglineError when the pool is too small for
    anything."""
    geometry = KvGeometry.of(pair.planes, settings.context.pool_mb << 20, settings.context.kv)
    if geometry.n_blocks == 0:
        size = KvGeometry(pair.planes, 1, settings.context.kv).block_bytes / 2**20
        raise RinglineError(
            f"context.pool_mb = {settings.context.pool_mb} is less than one block of {size:.2f} MB: raise it"
        )
    target = pair.target
    limits = Limits.of(settings, geometry, int(target.spec["n_vocab"]), target.context_length)
    spec = ControlSpec(
        planes=pair.planes,
        models=pair.hashes,
        kv=geometry.kv,
        n_blocks=geometry.n_blocks,
        block_bytes=geometry.block_bytes,
        chunk=limits.chunk,
        step=limits.step,
        record_slots=limits.record.slots,
        record_blocks=limits.record.blocks,
        record_tokens=limits.record.tokens,
        record_bytes=limits.record.total_bytes,
    )
    return spec, limits


def build(
    segment: Segment,
    limits: Limits,
    send: Callable[[Role, Message], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Sessions, Writers]:
    """Sessions over the segment's memory: empty ones, or those of an owner that was killed."""
    allocator = BlockAllocator(segment.allocator, segment.spec.n_blocks, True)
    store = RecordStore(segment.records, limits.record)
    ledger = Ledger(limits, BlockPool(allocator), store, Holds(), segment.map_pool().copy_block)
    sessions = Sessions(ledger, send, _new_ids(segment), clock)
    writers = Writers(sessions, segment)
    if segment.recovered:
        largest = recover(sessions, clock())
        segment.next_sequence = max(segment.next_sequence % _SEQUENCE_IDS, largest + 1)
    return sessions, writers


def _new_ids(segment: Segment) -> Callable[[], int]:
    """Sequence ids, each marked as used in kv.ctl before it is."""

    def new_id() -> int:
        seq = segment.next_sequence
        segment.next_sequence = seq + 1
        return seq

    return new_id


def _loop(
    server: BusServer, segment: Segment, limits: Limits, files: OwnFiles, stop: threading.Event
) -> None:
    def send(role: Role, message: Message) -> None:
        peer = server.peer(role)
        if peer is not None:
            server.send(peer, message)

    sessions, writers = build(segment, limits, send)
    protocol = Protocol(sessions, writers, segment, server.send, lambda: server.peers)
    _log.info("ready", blocks=segment.spec.n_blocks, recovered=segment.recovered)
    lost_check = integrity_check = time.monotonic()
    while not stop.is_set():
        events = server.poll(_POLL_S)
        for peer, event in events:
            protocol.handle(peer, event)
        sessions.expire()
        now = time.monotonic()
        if now - lost_check >= _LOST_CHECK_S:
            lost_check = now
            writers.bury()
            files.check()
        if not events and now - integrity_check >= _INTEGRITY_S:
            integrity_check = now
            report_integrity(sessions.ledger)


def report_integrity(ledger: Ledger) -> None:
    for line in ledger.check_integrity():
        _log.error("the block pool is inconsistent", problem=line)
