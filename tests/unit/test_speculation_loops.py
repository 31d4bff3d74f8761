"""The loops of verifier and draft, message by message, over a bus of two lists."""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Sequence as Seq
from threading import Event
from typing import cast

import pytest
from structlog.testing import capture_logs

from services.draft.history import History
from services.draft.loop import Loop as DraftLoop
from services.draft.mailbox import Mailbox
from services.draft.pacing import Pacing
from services.draft.plant import Plant
from services.verifier.acceptance import Verdict
from services.verifier.batch import Limits, Plan
from services.verifier.budget import Budget
from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from services.verifier.deferral import Deferral
from services.verifier.engine import Engine, Failure, Outcome
from services.verifier.loop import Loop
from services.verifier.sequences import Sequence
from shared.bus.client import BusClient
from shared.bus.events import Joined, Lost
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Welcome
from shared.bus.messages.sequences import (
    Commit,
    CommitFailed,
    Draw,
    Proposal,
    SeqAppend,
    SeqClose,
    SeqOpen,
    SeqReleased,
    SeqState,
)
from shared.kv import Attached
from shared.native import KvPool

PLANE = (1, 1, 64)
BLOCKS = 8


class Bus:
    """Hands out what is queued and stops the loop when there is no more."""

    def __init__(self, stop: Event, items: Seq[Message | Joined | Lost]) -> None:
        self._stop = stop
        self._items = deque(items)
        self.sent: list[Message] = []
        self.proposed: list[Proposal] = []

    def receive(self, _timeout_s: float) -> Message | Joined | Lost | None:
        if self._items:
            return self._items.popleft()
        self._stop.set()
        return None

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def propose(self, proposal: Proposal) -> None:
        self.proposed.append(proposal)

    def working(self, busy: bool) -> None: ...


class OneToken:
    """An engine whose every pass computes what is pending and says 7; it fails sequences with a token 99."""

    n_vocab = 100

    def __init__(self) -> None:
        self.drafts: list[list[int]] = []
        self.chunks: list[int] = []

    def run(self, plan: Plan[Sequence]) -> list[Outcome | Failure]:
        outcomes: list[Outcome | Failure] = []
        self.chunks.append(plan.chunk.length if plan.chunk is not None else 0)
        for tree in plan.trees:
            self.drafts.append(tree.drafts.tokens)
            outcomes.append(self._outcome(tree.sequence, 1))
        if plan.chunk is not None:
            outcomes.append(self._outcome(plan.chunk.sequence, plan.chunk.length))
        return outcomes

    def _outcome(self, sequence: Sequence, written: int) -> Outcome | Failure:
        if 99 in sequence.pending_tokens(written):
            return Failure(sequence, "token 99")
        sequence.view.length += written
        return Outcome(sequence, written, Verdict([], [7], None))


@pytest.fixture
def pool() -> KvPool:
    return KvPool(mmap.mmap(-1, KvPool.block_bytes([PLANE]) * BLOCKS), BLOCKS, [PLANE])


def joined() -> Joined:
    return Joined(Welcome(context_incarnation=1, generation=5))


def snapshot(seq: int, tokens: list[int], **other: object) -> SeqOpen:
    fields = {
        "epoch": 0, "prompt_len": len(tokens), "kv_len": len(tokens) - 1, "draft_kv_len": 0,
        "blocks": [0, 1], "sink": 0, "ring": 128, "window": 64, "max_tokens": 20,
        "stop_tokens": [], "severity": 1,
    }  # fmt: skip
    return SeqOpen.model_validate({"seq": seq, "tokens": tokens, **fields, **other})


def state(seq: int, epoch: int, kv_len: int, tokens: list[int]) -> SeqState:
    return SeqState(seq=seq, epoch=epoch, kv_len=kv_len, tokens=tokens, first_block=0, blocks=[])


def proposal(seq: int, base: int, tokens: list[int]) -> Proposal:
    n = len(tokens)
    return Proposal(
        seq=seq, base=base, tokens=tokens, parents=list(range(-1, n - 1)), sources=[0] * n, logq=[-0.1] * n
    )


def make_loop(pool: KvPool, bus: Bus, engine: OneToken) -> Loop:
    limits = Limits(7, 32, 64)
    budget = Budget(PassCost(limits.pass_nodes), Calibration())
    client, deferral = cast(BusClient, bus), Deferral(7, 0.0)
    return Loop(client, cast(Engine, engine), limits, budget, deferral, lambda: Attached(pool, 5))


def verify(pool: KvPool, *items: Message | Joined | Lost) -> tuple[Bus, OneToken]:
    stop = Event()
    bus, engine = Bus(stop, items), OneToken()
    make_loop(pool, bus, engine).run(stop)
    return bus, engine


def test_a_sequence_runs_one_commit_ahead_and_then_waits(pool: KvPool) -> None:
    stop = Event()
    bus = Bus(stop, [joined(), snapshot(1, [1, 2, 3])])
    loop = make_loop(pool, bus, OneToken())
    loop._drain()
    for _ in range(5):
        loop._step(0.0)
    commits = [m for m in bus.sent if isinstance(m, Commit)]
    assert [(c.epoch, c.kv_len, c.written, c.tokens) for c in commits] == [(0, 2, 1, [7]), (1, 3, 1, [7])]
    bus._items.append(state(1, 1, 3, [7]))
    loop._drain()
    loop._step(0.0)
    assert len(bus.sent) == 3


def test_proposals_that_fit_are_verified_and_bad_ones_are_dropped(pool: KvPool) -> None:
    broken = proposal(1, 3, [4, 5]).model_copy(update={"parents": [-1, 1]})
    _, engine = verify(
        pool,
        joined(),
        snapshot(1, [1, 2, 3]),
        proposal(1, 3, [10, 11]),
        proposal(1, 3, [12, 500]),
        proposal(2, 3, [13]),
        broken,
        proposal(1, 9, [14]),
    )
    assert engine.drafts[0][:2] == [10, 11]
    assert not {12, 13, 14, 500} & set(engine.drafts[0])


def test_what_was_drawn_from_must_be_in_the_vocabulary_too(pool: KvPool) -> None:
    draw = Draw(parent=-1, children=[0], ids=[12, 500], probs=[0.5, 0.5])
    drawn = proposal(1, 3, [12]).model_copy(update={"draws": [draw]})
    _, engine = verify(pool, joined(), snapshot(1, [1, 2, 3]), drawn)
    assert engine.drafts[0] == []


def test_bad_proposals_are_few_lines_in_the_log(pool: KvPool) -> None:
    """However many come."""
    with capture_logs() as lines:
        verify(pool, joined(), snapshot(1, [1, 2, 3]), *[proposal(1, 3, [12, 500])] * 200)
    assert [line["event"] for line in lines].count("proposal dropped") == 1


def test_a_prefill_stalls_a_running_answer_by_its_chunk_at_most(pool: KvPool) -> None:
    """However much is to be computed: every pass also has the next token of the answer."""
    stop = Event()
    bus, engine = Bus(stop, [joined(), snapshot(1, [1, 2, 3])]), OneToken()
    loop = make_loop(pool, bus, engine)
    prompts = [snapshot(seq, [5] * 100, kv_len=0, blocks=[2, 3, 4, 5, 6, 7, 0], severity=3) for seq in (2, 3)]
    loop._drain()
    for epoch in range(5):
        loop._step(0.0)
        bus._items.extend([state(1, epoch + 1, 3 + epoch, [7]), *prompts])
        prompts = []
        loop._drain()
    answered = [m.epoch for m in bus.sent if isinstance(m, Commit) and m.seq == 1]
    assert answered == [0, 1, 2, 3, 4]
    assert engine.chunks[0] == 0
    assert all(0 < n <= 64 for n in engine.chunks[1:])


def test_the_loop_learns_from_every_pass(pool: KvPool) -> None:
    """What passes cost, how often drafts are right, and what rejections leave."""
    stop = Event()
    drafts = [proposal(1, 3, [7, 7, 8]), proposal(1, 3, [9])]
    bus = Bus(stop, [joined(), snapshot(1, [1, 2, 3]), *drafts])
    loop = make_loop(pool, bus, OneToken())
    loop._drain()
    loop._step(time.monotonic())
    assert loop._budget.cost.unit_s > 0.0
    trie = next(iter(loop._sequences.values())).trie
    assert trie.best(9).tokens == [7, 8]
    assert (loop.tally.passes, loop.tally.tokens, loop.tally.survival.rejections) == (1, 1, 0)
    bus._items.append(proposal(1, 4, [6]))
    bus._items.append(proposal(1, 4, [6]).model_copy(update={"logq": [-0.01]}))
    loop._drain()
    loop._step(time.monotonic())
    figures = loop.tally.figures()
    assert (figures["rejections"], figures["used_share"], figures["kept_share"]) == (1, 0.333, 0.333)


def test_a_wait_whose_sequence_goes_away_does_not_count_for_the_next_pass(pool: KvPool) -> None:
    stop = Event()
    bus = Bus(stop, [joined(), snapshot(1, [1, 2, 3]), proposal(1, 3, [7, 8])])
    loop = make_loop(pool, bus, OneToken())
    loop._deferral = Deferral(7, 1.0)
    loop._budget.cost.observe(10.0, 1)
    loop._drain()
    loop._step(time.monotonic())
    assert loop._waiting_since is not None
    bus._items.append(SeqClose(seq=1, reason="cancelled"))
    loop._drain()
    loop._step(time.monotonic())
    assert loop._waiting_since is None


def test_a_pass_waits_for_the_drafts_that_are_being_computed_behind_its_root(pool: KvPool) -> None:
    """They follow the token that the pass before has said, and cost nothing when it said another one."""
    stop = Event()
    bus = Bus(stop, [joined(), snapshot(1, [1, 2, 3])])
    loop, engine = make_loop(pool, bus, OneToken()), OneToken()
    loop._engine = cast(Engine, engine)
    loop._deferral = Deferral(7, 1.0)
    loop._budget.cost.observe(10.0, 1)
    loop._deferral.waited(1.0, in_vain=False)
    loop._drain()
    due = time.monotonic() + 0.1
    at = proposal(1, 3, [8]).model_copy(update={"logq": [-9.0], "next": [7], "due": due})
    bus._items.append(at)
    loop._drain()
    sequence = loop._sequences[1]
    assert sequence.due is None, "it is not what follows the root that is being computed"
    sequence.advance(1, Verdict([], [7], None), time.monotonic())
    assert sequence.due == due
    loop._step(time.monotonic())
    assert engine.drafts == [], "the pass waits"
    sequence.advance(1, Verdict([], [9], None), time.monotonic())
    assert sequence.due is None


def test_only_a_models_proposal_that_is_taken_says_what_it_computes(pool: KvPool) -> None:
    stop = Event()
    bus = Bus(stop, [joined(), snapshot(1, [1, 2, 3])])
    loop = make_loop(pool, bus, OneToken())
    loop._drain()

    def due_after(**fields: object) -> float | None:
        bus._items.append(proposal(1, 3, [8, 9]).model_copy(update=fields))
        loop._drain()
        return loop._sequences[1].due

    assert loop._sequences[1].due is None, "nothing was announced"
    assert due_after(next=[], due=7.0, parents=[5, -1]) is None, "it is dropped"
    assert due_after(next=[], due=7.0) == 7.0
    assert due_after() == 7.0, "retrieval knows nothing of the model"
    assert due_after(due=8.0) is None, "the model has nothing more to compute"


def test_a_closed_sequence_is_released_also_when_it_is_unknown(pool: KvPool) -> None:
    bus, engine = verify(
        pool, joined(), snapshot(1, [1]), SeqClose(seq=1, reason="x"), SeqClose(seq=9, reason="x")
    )
    assert bus.sent == [SeqReleased(seq=1), SeqReleased(seq=9)]
    assert engine.drafts == []


def test_only_the_sequence_that_fails_is_given_up(pool: KvPool) -> None:
    bus, _ = verify(pool, joined(), snapshot(1, [1, 99]), snapshot(2, [1, 2]))
    assert [m.seq for m in bus.sent if isinstance(m, CommitFailed)] == [1]
    assert [m.seq for m in bus.sent if isinstance(m, Commit)][:1] == [2]


def test_a_snapshot_that_makes_no_sense_is_answered_not_obeyed(pool: KvPool) -> None:
    bus, engine = verify(
        pool, joined(), snapshot(1, [1, 2], blocks=[0, BLOCKS]), snapshot(2, [1, 2], kv_len=3)
    )
    assert [m.seq for m in bus.sent if isinstance(m, CommitFailed)] == [1, 2]
    assert len(bus.sent) == 2
    assert engine.drafts == []


@pytest.mark.parametrize("strange", [state(1, 4, 6, [5, 5]), state(1, 1, 9, [7])])
def test_a_state_that_is_not_its_own_makes_the_verifier_ask_for_a_snapshot(
    pool: KvPool, strange: SeqState
) -> None:
    """A commit that context can never accept: it answers with what is true."""
    bus, _ = verify(pool, joined(), snapshot(1, [1, 2, 3]), strange)
    (asked,) = [m for m in bus.sent if isinstance(m, Commit)]
    assert asked.epoch == 2**53 - 1
    assert (asked.written, asked.tokens) == (0, [])


def test_sequences_of_a_lost_context_are_dropped(pool: KvPool) -> None:
    bus, engine = verify(pool, joined(), snapshot(1, [1, 2]), Lost("gone"))
    assert bus.sent == []
    assert engine.drafts == []


def test_a_stream_is_computed_as_it_grows_and_never_ends(pool: KvPool) -> None:
    """Positions are far behind what a 32-bit number holds; the older tokens are forgotten."""
    far = 128 * 2**28
    opened = snapshot(
        1, [1, 2], first=far, prompt_len=far + 2, kv_len=far, max_tokens=0, blocks=[0, 1, 2, 3, 4, 5, 6, 7]
    )
    grown = SeqAppend(seq=1, known=far + 2, tokens=[3], first_block=0, blocks=[])
    bus, _ = verify(pool, joined(), opened, grown)
    commits = [m for m in bus.sent if isinstance(m, Commit)]
    assert sum(m.written for m in commits) == 3
    assert commits[0].kv_len == far


def test_an_append_behind_other_tokens_makes_the_verifier_ask_for_a_snapshot(pool: KvPool) -> None:
    opened = snapshot(1, [1, 2], kv_len=2, max_tokens=0)
    bus, _ = verify(pool, joined(), opened, SeqAppend(seq=1, known=5, tokens=[3], first_block=0, blocks=[]))
    assert [m.epoch for m in bus.sent if isinstance(m, Commit)] == [2**53 - 1]


def test_a_paused_answer_is_computed_again_and_goes_on(pool: KvPool) -> None:
    """Its pending tokens are the end of the prompt and what was answered before."""
    bus, _ = verify(pool, joined(), snapshot(1, [1, 2, 3, 7, 7], prompt_len=3, kv_len=0, max_tokens=4))
    commits = [m for m in bus.sent if isinstance(m, Commit)]
    assert (commits[0].written, commits[0].tokens) == (5, [7])


def draft(
    pool: KvPool, mailbox: Mailbox | None, *items: Message | Joined | Lost, plant: Plant | None = None
) -> Bus:
    stop = Event()
    bus = Bus(stop, items)
    source = plant or Plant()
    DraftLoop(cast(BusClient, bus), source, mailbox, lambda: Attached(pool, 5), Pacing(True)).run(stop)
    return bus


def test_retrieval_proposes_with_the_snapshot_and_with_every_state(pool: KvPool) -> None:
    bus = draft(pool, None, joined(), snapshot(1, [1, 2, 3, 4, 1, 2]), state(1, 1, 6, [3]))
    assert [(p.base, p.tokens[0]) for p in bus.proposed] == [(6, 3), (7, 4)]


def test_a_missing_state_stops_retrieval_until_the_next_snapshot(pool: KvPool) -> None:
    tokens = [1, 2, 3, 4, 1, 2]
    again = snapshot(1, [*tokens, 3], epoch=3)
    bus = draft(pool, None, joined(), snapshot(1, tokens), state(1, 2, 6, [3]), state(1, 3, 7, [4]), again)
    assert [p.base for p in bus.proposed] == [6, 7]


@pytest.mark.parametrize(("reason", "kept"), [("stop", 1), ("length", 1), ("cancelled", 0), ("preempted", 0)])
def test_only_finished_answers_enter_the_history(pool: KvPool, reason: str, kept: int) -> None:
    plant = Plant(History(1000))
    close = SeqClose(seq=1, reason=reason, tokens=[7, 8])
    draft(pool, None, joined(), snapshot(1, [1, 2]), state(1, 1, 2, [5, 6]), close, plant=plant)
    assert plant.history is not None
    assert [plant.history.index.document(i) for i in range(kept)] == [[1, 2, 5, 6, 7, 8]] * kept
    assert plant.history.index.documents == kept


def test_an_answer_with_a_gap_does_not_enter_the_history(pool: KvPool) -> None:
    plant = Plant(History(1000))
    close = SeqClose(seq=1, reason="stop", tokens=[7, 8, 9, 10])
    draft(pool, None, joined(), snapshot(1, [1, 2]), state(1, 2, 2, [5, 6]), close, plant=plant)
    assert plant.history is not None
    assert plant.history.index.documents == 0


def test_a_prefix_is_not_drafted_for(pool: KvPool) -> None:
    assert draft(pool, None, joined(), snapshot(1, [1, 2, 1, 2], max_tokens=0)).proposed == []


def test_the_models_thread_gets_the_pool_and_the_news_and_closes_are_answered_at_once(pool: KvPool) -> None:
    mailbox = Mailbox()
    news = snapshot(1, [1, 2]), state(1, 1, 2, [3])
    bus = draft(pool, mailbox, joined(), *news, SeqClose(seq=4, reason="x"))
    assert bus.sent == [SeqReleased(seq=4)]
    assert mailbox.take(0.0) == [pool, *news]
