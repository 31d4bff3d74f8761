"""The verifier's loop: take messages, compose a pass, perhaps wait a little, run it, report it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain
from threading import Event

import structlog

from services.verifier.batch import Limits, Plan, compose
from services.verifier.budget import Budget
from services.verifier.deferral import Deferral, Patience, Pause
from services.verifier.engine import Engine, Failure, Outcome
from services.verifier.sequences import Sequence
from services.verifier.tally import Tally
from shared.bus.client import BusClient
from shared.bus.events import Joined, Lost
from shared.bus.messages.fields import Message
from shared.bus.messages.sequences import (
    Commit,
    CommitFailed,
    Proposal,
    SeqAppend,
    SeqClose,
    SeqOpen,
    SeqReleased,
    SeqState,
)
from shared.config.sparse_log import SparseWarning
from shared.kv import TARGET_PLANE, Attached, LatePool

IDLE_S = 0.2  # how long an idle loop sleeps before it looks at its stop event
_NO_EPOCH = 2**53 - 1  # a commit of this epoch is never right: context answers it with a snapshot

_log = structlog.get_logger()


class Loop:
    """`attach` maps the pool; called when context has made a new one."""

    def __init__(
        self,
        bus: BusClient,
        engine: Engine,
        limits: Limits,
        budget: Budget,
        deferral: Deferral,
        attach: Callable[[], Attached],
    ) -> None:
        self._bus = bus
        self._engine = engine
        self._limits = limits
        self._budget = budget
        self._deferral = deferral
        self._pool = LatePool(attach)
        self._sequences: dict[int, Sequence] = {}
        self._unopened: set[int] = set()  # came while there was no pool
        self._passes = 0
        self._patience = Patience()  # what the latest answer has learnt about waiting
        self.tally = Tally()
        self._waiting_since: float | None = None
        self._bad_proposal = SparseWarning("proposal dropped")

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            began = time.monotonic()
            self._drain()
            self._step(began)
        self.tally.say()

    def _step(self, began: float) -> None:
        """One pass, or one wait. `began`: when the work for it did, monotonic seconds."""
        plan = compose([s for s in self._sequences.values() if s.runnable], self._limits, self._budget)
        if plan.chunk is None and not plan.trees:
            self._waiting_since = None
            self._look_for_pool()
            self._receive(IDLE_S)
            return
        for tree in plan.trees:
            tree.sequence.wait.look(tree.drafts, tree.sequence.due)
        pause = self._pause(plan)
        if pause is not None:
            if not pause.due:
                self._waiting_since = self._waiting_since or began
            for tree in plan.trees:
                tree.sequence.wait.go_on(tree.drafts, tree.sequence.due if pause.due else None)
            self._receive(pause.seconds)
            return
        if self._waiting_since is not None:
            in_vain = all(tree.sequence.proposed_at is None for tree in plan.trees)
            self._deferral.waited(began - self._waiting_since, in_vain)
        self._pass(plan, began)

    def _pause(self, plan: Plan[Sequence]) -> Pause | None:
        candidates = [(tree.sequence, tree.drafts) for tree in plan.trees]
        token_s = self._budget.cost.unit_s * plan.cost / plan.tokens if plan.trees else 0.0
        return self._deferral.pause(time.monotonic(), candidates, plan.chunk is not None, token_s)

    def _pass(self, plan: Plan[Sequence], began: float) -> None:
        self._bus.working(True)
        rows, attended = plan.rows, plan.attended
        chunk = plan.chunk.length if plan.chunk is not None else 0
        outcomes = self._engine.run(plan)
        now = time.monotonic()
        self._passes += 1
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                self._fail(outcome.sequence.seq, outcome.sequence.epoch, outcome.reason)
            else:
                self._report(outcome)
                self._learn(outcome, now)
        self._budget.cost.observe(now - began, rows, chunk, attended)
        self.tally.ran(now, rows > len(plan.trees))
        self._waiting_since = None
        self._bus.working(False)

    def _report(self, outcome: Outcome) -> None:
        sequence, verdict = outcome.sequence, outcome.verdict
        self._bus.send(
            Commit(
                seq=sequence.seq,
                epoch=sequence.epoch,
                kv_len=sequence.view.length - outcome.written,
                written=outcome.written,
                tokens=verdict.tokens,
                finish=verdict.finish,
                drafted=len(outcome.drafts),
                accepted=len(outcome.accepted),
                accepted_by_source=outcome.by_source(),
                forward_ms=outcome.forward_ms,
            )
        )

    def _learn(self, outcome: Outcome, now: float) -> None:
        """Move the sequence on; what its drafts were worth is remembered."""
        sequence, verdict = outcome.sequence, outcome.verdict
        trie, tokens = sequence.trie, verdict.tokens
        self._budget.calibration.learn(trie, tokens)
        sequence.wait.end(outcome.drafts, outcome.accepted, sequence.patience)
        refuted, nodes = trie.refuted_by(tokens), trie.size
        drafted = sequence.advance(outcome.written, verdict, now)
        self.tally.sequence(len(tokens), len(outcome.drafts), len(outcome.accepted))
        if refuted:
            self.tally.survival.add(nodes, drafted, trie.size)
        sequence.last_pass = self._passes
        if sequence.finished:
            self._patience = sequence.patience

    # --- messages ---

    def _drain(self) -> None:
        """Everything that has arrived, without waiting."""
        while self._receive(0.0):
            pass

    def _receive(self, timeout_s: float) -> bool:
        item = self._bus.receive(timeout_s)
        if item is None:
            return False
        if isinstance(item, Joined):
            self._join(item.welcome.generation)
        elif isinstance(item, Lost):
            self._forget()
            self._pool.lost()
            _log.warning("context lost", reason=item.reason)
        else:
            self._take(item)
        return True

    def _join(self, generation: int) -> None:
        self._forget()
        self._pool.joined(generation, time.monotonic())
        self._look_for_pool()
        _log.info("joined", generation=generation)

    def _forget(self) -> None:
        self._sequences.clear()
        self._unopened.clear()

    def _look_for_pool(self) -> None:
        if self._pool.attempt(time.monotonic()):
            for seq in self._unopened:
                self._ask_for_snapshot(seq, 0)
            self._unopened.clear()

    def _take(self, message: Message) -> None:
        match message:
            case Proposal():
                self._propose(message)
            case SeqState() | SeqAppend():
                self._confirm(message)
            case SeqOpen():
                self._open(message)
            case SeqClose():
                self._sequences.pop(message.seq, None)
                self._unopened.discard(message.seq)
                self._bus.send(SeqReleased(seq=message.seq))
            case _:
                _log.warning("unexpected message", type=type(message).__name__)

    def _open(self, snapshot: SeqOpen) -> None:
        attached = self._pool.attached
        if attached is None:
            self._unopened.add(snapshot.seq)
            return
        try:
            sequence = Sequence(snapshot, attached.pool, TARGET_PLANE, time.monotonic())
        except (ValueError, TypeError) as error:
            self._fail(snapshot.seq, snapshot.epoch, str(error))
        else:
            sequence.patience = self._patience.copy()
            self._sequences[snapshot.seq] = sequence

    def _confirm(self, news: SeqState | SeqAppend) -> None:
        sequence = self._sequences.get(news.seq)
        if sequence is None:
            return
        try:
            agreed = sequence.append(news) if isinstance(news, SeqAppend) else sequence.confirm(news)
        except (ValueError, TypeError) as error:
            self._fail(news.seq, sequence.epoch, str(error))
        else:
            if not agreed:
                self._resynchronise(sequence)

    def _resynchronise(self, sequence: Sequence) -> None:
        _log.warning("out of step", seq=sequence.seq, epoch=sequence.epoch, known=sequence.known)
        del self._sequences[sequence.seq]
        self._ask_for_snapshot(sequence.seq, sequence.view.length)

    def _ask_for_snapshot(self, seq: int, length: int) -> None:
        self._bus.send(Commit(seq=seq, epoch=_NO_EPOCH, kv_len=length, written=0, tokens=[]))

    def _propose(self, proposal: Proposal) -> None:
        now = time.monotonic()
        self._deferral.heard(now)
        sequence = self._sequences.get(proposal.seq)
        if sequence is None or not proposal.tokens:
            return
        ids = chain(proposal.tokens, *(draw.ids for draw in proposal.draws))
        if max(ids) >= self._engine.n_vocab:
            self._bad_proposal(seq=proposal.seq, reason="token out of the vocabulary")
            return
        tree = proposal.tokens, proposal.parents, proposal.sources, proposal.logq
        try:
            fitting = sequence.trie.insert(proposal.base, *tree, proposal.draws)
        except ValueError as error:
            self._bad_proposal(seq=proposal.seq, reason=str(error))
        else:
            if proposal.due > 0:
                sequence.announced = proposal
            if fitting:
                if self._waiting_since is not None and sequence.proposed_at is None:
                    self._deferral.answered(now - sequence.ready_at)
                sequence.proposed(now)

    def _fail(self, seq: int, epoch: int, reason: str) -> None:
        _log.error("sequence failed", seq=seq, reason=reason)
        self._sequences.pop(seq, None)
        self._bus.send(CommitFailed(seq=seq, epoch=epoch, reason=reason))
