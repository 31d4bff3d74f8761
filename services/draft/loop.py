"""The draft service's loop: news from context, retrieval drafts at once, the rest to the model's thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

import structlog

from services.draft.mailbox import Mailbox
from services.draft.pacing import Pacing
from services.draft.plant import Plant
from services.draft.retrieval import Retrieval
from shared.bus.client import BusClient
from shared.bus.events import Joined, Lost
from shared.bus.messages.fields import Message
from shared.bus.messages.sequences import Proposal, SeqAppend, SeqClose, SeqOpen, SeqReleased, SeqState
from shared.kv import Attached, LatePool

IDLE_S = 0.2  # how long an idle loop sleeps before it looks at its stop event
_COMPLETE = ("stop", "length")  # how an answer ends that others may draft from

_log = structlog.get_logger()


@dataclass(slots=True)
class Followed:
    """A sequence that is drafted for by retrieval."""

    epoch: int
    known: int
    source: Retrieval


class Loop:
    """`plant` is what retrieval drafts from, `mailbox` leads to the CPU source: None without that source.

    `attach` maps the pool that the CPU source writes to, `pacing` says when it is to work.
    """

    def __init__(
        self,
        bus: BusClient,
        plant: Plant | None,
        mailbox: Mailbox | None,
        attach: Callable[[], Attached],
        pacing: Pacing,
    ) -> None:
        self._bus = bus
        self._plant = plant
        self._mailbox = mailbox
        self._pacing = pacing
        self._pool = LatePool(attach)
        self._followed: dict[int, Followed] = {}

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            item = self._bus.receive(IDLE_S)
            if isinstance(item, Joined):
                self._join(item.welcome.generation)
            elif isinstance(item, Lost):
                self._lose(item.reason)
            elif item is not None:
                self._take(item)
            if self._mailbox is not None:
                self._look_for_pool(self._mailbox)
                self._mailbox.pause(not self._pacing.drafting)

    def _join(self, generation: int) -> None:
        self._followed.clear()
        self._pacing.forget()
        if self._mailbox is not None:
            self._pool.joined(generation, time.monotonic())
            if self._pool.attached is not None:
                self._mailbox.put(self._pool.attached.pool)
            else:
                self._look_for_pool(self._mailbox)
        _log.info("joined", generation=generation)

    def _lose(self, reason: str) -> None:
        self._followed.clear()
        self._pacing.forget()
        self._pool.lost()
        if self._mailbox is not None:
            self._mailbox.forget()
        _log.warning("context lost", reason=reason)

    def _look_for_pool(self, mailbox: Mailbox) -> None:
        """A pool that comes late serves the sequences opened from then on; the others have other drafts."""
        if self._pool.attempt(time.monotonic()) and self._pool.attached is not None:
            mailbox.put(self._pool.attached.pool)

    def _take(self, message: Message) -> None:
        match message:
            case SeqState():
                self._state(message)
            case SeqAppend():
                if self._mailbox is not None:
                    self._mailbox.put(message)
            case SeqOpen():
                self._open(message)
            case SeqClose():
                self._close(message)
            case _:
                _log.warning("unexpected message", type=type(message).__name__)

    def _open(self, snapshot: SeqOpen) -> None:
        if self._mailbox is not None and self._pool.attached is not None:
            self._mailbox.put(snapshot)
        if snapshot.max_tokens > 0:
            self._pacing.opened(snapshot.seq)
        if self._plant is not None and snapshot.max_tokens > 0:
            known = snapshot.first + len(snapshot.tokens)
            self._followed[snapshot.seq] = Followed(snapshot.epoch, known, Retrieval(snapshot, self._plant))
            self._propose(snapshot.seq)

    def _state(self, state: SeqState) -> None:
        followed = self._followed.get(state.seq)
        if followed is not None:
            self._follow(followed, state)
        if self._mailbox is not None:
            self._mailbox.put(state)
        self._pacing.arrived(state.seq, len(state.tokens), time.monotonic())

    def _follow(self, followed: Followed, state: SeqState) -> None:
        if state.epoch != followed.epoch + 1:
            _log.warning("a state is missing: not drafted until the next snapshot", seq=state.seq)
            del self._followed[state.seq]
            return
        followed.epoch = state.epoch
        if state.tokens:
            followed.source.advance(state.tokens)
            followed.known += len(state.tokens)
            self._propose(state.seq)

    def _close(self, message: SeqClose) -> None:
        followed = self._followed.pop(message.seq, None)
        if followed is not None and message.reason in _COMPLETE:
            followed.source.advance(message.tokens)
            followed.source.finished()
        self._pacing.closed(message.seq)
        if self._mailbox is not None:
            self._mailbox.put(message)
        self._bus.send(SeqReleased(seq=message.seq))

    def _propose(self, seq: int) -> None:
        followed = self._followed[seq]
        tokens, parents, sources, logq = followed.source.draft()
        if tokens:
            self._bus.propose(
                Proposal(
                    seq=seq,
                    base=followed.known,
                    tokens=tokens,
                    parents=parents,
                    sources=sources,
                    logq=logq,
                )
            )
