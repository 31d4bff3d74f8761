"""A pool that cannot be attached is tried again, and the sequences that came meanwhile are not lost."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from threading import Event
from typing import cast

import pytest
import structlog

from services.draft.loop import Loop as DraftLoop
from services.draft.mailbox import Mailbox
from services.draft.pacing import Pacing
from services.verifier.batch import Limits
from services.verifier.budget import Budget
from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from services.verifier.deferral import Deferral
from services.verifier.engine import Engine
from services.verifier.loop import Loop
from shared.bus.client import BusClient
from shared.bus.events import Lost
from shared.bus.messages.sequences import Commit, SeqClose, SeqOpen, SeqReleased
from shared.config.errors import RinglineError
from shared.kv import Attached, LatePool
from shared.kv.late import LAST_RETRY_S
from shared.native import KvPool
from tests.unit.test_speculation_loops import PLANE, Bus, OneToken, joined, snapshot


@pytest.fixture
def pool() -> KvPool:
    return KvPool(mmap.mmap(-1, KvPool.block_bytes([PLANE]) * 8), 8, [PLANE])


class Source:
    """Attaches to `pool` once it is there; `generation` is what kv.ctl says."""

    def __init__(self, generation: int = 5) -> None:
        self.pool: KvPool | None = None
        self.generation = generation
        self.calls = 0

    def __call__(self) -> Attached:
        self.calls += 1
        if self.pool is None:
            raise RinglineError("kv.ctl cannot be read")
        return Attached(self.pool, self.generation)


def attempts(late: LatePool, until: float, step: float = 0.1) -> list[float]:
    """When it attaches, looked at in steps."""
    times = [number * step for number in range(int(until / step))]
    return [now for now in times if late.attempt(now)]


def test_it_is_tried_again_ever_more_rarely_and_the_reason_is_said_once() -> None:
    source = Source()
    late = LatePool(source)
    late.joined(5, 0.0)
    with structlog.testing.capture_logs() as logs:
        assert attempts(late, 100) == []
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert logs[0]["reason"] == "kv.ctl cannot be read"
    assert 100 / LAST_RETRY_S < source.calls < 100 / LAST_RETRY_S + 8


def test_the_pool_is_attached_when_it_is_there_and_kept_for_its_generation(pool: KvPool) -> None:
    source = Source()
    late = LatePool(source)
    late.joined(5, 0.0)
    assert not late.attempt(0.0)
    source.pool = pool
    assert len(attempts(late, 10)) == 1
    calls = source.calls
    late.lost()
    late.joined(5, 10.0)
    assert not late.attempt(20.0)
    assert source.calls == calls
    late.joined(6, 30.0)
    assert late.attached is None


def test_a_pool_of_another_generation_is_not_used(pool: KvPool) -> None:
    """Context is being replaced: its next Welcome will say which one is right."""
    source = Source(generation=6)
    source.pool = pool
    late = LatePool(source)
    late.joined(5, 0.0)
    assert attempts(late, 10) == []
    late.lost()
    assert attempts(late, 10) == []
    late.joined(6, 0.0)
    assert late.attempt(0.0)


def verifier(bus: Bus, attach: Callable[[], Attached]) -> Loop:
    limits = Limits(7, 32, 64)
    budget = Budget(PassCost(limits.pass_nodes), Calibration())
    return Loop(cast(BusClient, bus), cast(Engine, OneToken()), limits, budget, Deferral(7, 0.0), attach)


def test_the_verifier_asks_for_the_sequences_that_came_before_its_pool(
    pool: KvPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kv.late.FIRST_RETRY_S", 0.0)
    source = Source()
    closed = SeqClose(seq=2, reason="closed")
    bus = Bus(Event(), [joined(), snapshot(1, [1, 2]), snapshot(2, [1, 2]), closed])
    loop = verifier(bus, source)
    loop._drain()
    assert bus.sent == [SeqReleased(seq=2)]
    source.pool = pool
    loop._step(0.0)
    asked = bus.sent[1]
    assert isinstance(asked, Commit)
    assert (len(bus.sent), asked.seq, asked.epoch, asked.written) == (2, 1, 2**53 - 1, 0)
    bus._items.append(snapshot(1, [1, 2]))
    loop._drain()
    loop._step(0.0)
    assert isinstance(bus.sent[2], Commit)
    assert bus.sent[2].tokens == [7]


def test_the_verifier_forgets_what_a_lost_context_had_opened(
    pool: KvPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kv.late.FIRST_RETRY_S", 0.0)
    source = Source()
    bus = Bus(Event(), [joined(), snapshot(1, [1, 2]), Lost("gone"), joined()])
    loop = verifier(bus, source)
    loop._drain()
    source.pool = pool
    loop._step(0.0)
    assert bus.sent == []


def test_the_drafts_model_gets_no_sequence_without_a_pool_and_none_of_a_lost_context(pool: KvPool) -> None:
    source, mailbox, stop = Source(), Mailbox(), Event()
    bus = Bus(stop, [joined(), snapshot(1, [1, 2])])
    loop = DraftLoop(cast(BusClient, bus), None, mailbox, source, Pacing(True))
    loop.run(stop)
    assert mailbox.take(0.0) == []
    source.pool = pool
    stop.clear()
    bus._items.extend([joined(), snapshot(1, [1, 2])])
    loop.run(stop)
    taken = mailbox.take(0.0)
    assert taken is not None
    assert [type(item) for item in taken] == [KvPool, SeqOpen]
    stop.clear()
    bus._items.append(Lost("gone"))
    loop.run(stop)
    assert mailbox.take(0.0) == [SeqClose(seq=1, reason="context lost")]
