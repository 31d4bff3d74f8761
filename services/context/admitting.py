"""Letting in: prefixes first, then requests by severity, each only when it can surely finish."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from services.context import opening
from services.context.ledger import Ledger
from services.context.post import Post
from services.context.preemption import CRITICAL, answering, streams_in_the_way, victims
from services.context.prefix_cache import Entry
from services.context.profiles import Profile, Profiles
from services.context.replies import accepted
from services.context.sequence import Sequence
from services.context.waiting import Waiting, WaitingQueue

RETRY_MIN_S, RETRY_MAX_S = 1.0, 60.0

_log = structlog.get_logger()


class Admitting:
    """`new_id` gives sequence ids that were never used before."""

    def __init__(
        self,
        ledger: Ledger,
        profiles: Profiles,
        post: Post,
        new_id: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self.waiting = WaitingQueue(ledger.limits.max_waiting)
        self.preempted = 0  # requests, since start
        self._ledger = ledger
        self._profiles = profiles
        self._post = post
        self._new_id = new_id
        self._clock = clock
        self._typical_s = 5.0  # duration of a request, smoothed

    def admit(self) -> None:
        """Let in whoever there is room for. Nobody is overtaken for want of memory; who waits for a prefix or
        for a stream to be computed holds up nobody, unless a critical request waits for the prefix's room."""
        held_up = [profile for profile in self._profiles.all() if not self._compute_prefix(profile)]
        if held_up:
            return
        for waiting in self.waiting:
            wanted = self._profiles.get(waiting.submit.profile)
            if wanted is None or not wanted.ready or self._asks_in_vain(waiting):
                continue
            if not self._start(waiting, wanted):
                return

    def open(self, sequence: Sequence, entries: list[Entry]) -> None:
        """Make it live under an id of its own and tell the writers. The ledger has room for it."""
        sequence.seq = self._new_id()
        self._ledger.cache.use(entries, sequence.known - sequence.kv_len)
        self._ledger.open(sequence)
        self._post.writers(sequence.snapshot())

    def retry_s(self) -> float:
        """When a request that is refused now may come again."""
        rounds = 1 + len(self.waiting) / self._ledger.limits.max_sequences
        return min(RETRY_MAX_S, max(RETRY_MIN_S, rounds * self._typical_s))

    def took(self, seconds: float) -> None:
        """So long a request has lasted."""
        self._typical_s += 0.2 * (seconds - self._typical_s)

    def asked(self, stream: str) -> bool:
        """Whether a question waits for this stream to be computed."""
        return any(waiting.submit.stream == stream for waiting in self.waiting)

    def stream(self, name: str) -> Sequence | None:
        return next((s for s in self._ledger.live.values() if s.stream == name), None) if name else None

    def end_stream(self, stream: Sequence, reason: str) -> None:
        _log.info("stream closed", stream=stream.stream, reason=reason)
        self._ledger.close(stream, "closed")
        self._post.close(stream.seq, reason)

    def _compute_prefix(self, profile: Profile) -> bool:
        """Begin with a prefix that is wanted and not computed. False: a critical request waits for it, and
        requests are leaving to make room for it; nobody may take that."""
        prefix = self._profiles.candidate(profile, self._clock())
        if prefix is None:
            return True
        urgent = any(w.submit.profile == profile.name and w.submit.severity >= CRITICAL for w in self.waiting)
        if self._has_room(prefix) or (urgent and self._make_room(prefix)):
            self._profiles.start(profile, prefix, self._new_id)
            self._post.writers(prefix.snapshot())
            return True
        wanted_by = [waiting for waiting in self.waiting if waiting.submit.profile == profile.name]
        if wanted_by and not self._others():
            if self._end_streams(prefix):
                return self._compute_prefix(profile)
            self._refuse(wanted_by, prefix)
        return not (urgent and self._ledger.held)

    def _asks_in_vain(self, waiting: Waiting) -> bool:
        """Its stream has tokens that are not computed: their number falls until it can be forked."""
        parent = self._parent(waiting)
        return parent is not None and parent.pending > 0

    def _parent(self, waiting: Waiting) -> Sequence | None:
        parent = self.stream(waiting.submit.stream)
        return parent if parent is not None and parent.profile == waiting.submit.profile else None

    def _start(self, waiting: Waiting, profile: Profile) -> bool:
        """False: it must wait for memory or for a place."""
        for sequence, entries in self._candidates(waiting, profile):
            if self._has_room(sequence) or self._make_room(sequence):
                self._begin(waiting, sequence, entries)
                return True
            if self._others():
                return False
        if self._end_streams(sequence):
            return self._start(waiting, profile)
        self._refuse([waiting], sequence)
        return True

    def _end_streams(self, candidate: Sequence) -> bool:
        """Nobody else will make room, and what was logged is only context: whether streams have ended."""
        ending = streams_in_the_way(self._ledger, candidate)
        for stream in ending:
            self.end_stream(stream, "an alarm needs its room")
        return bool(ending)

    def _refuse(self, hopeless: list[Waiting], candidate: Sequence) -> None:
        pinned = {block for blocks in self._ledger.pins.values() for block in blocks}
        total, needed = self._ledger.pool.total, candidate.worst_blocks()
        left = total - len(pinned.difference(candidate.blocks))
        reason = (
            f"it may need {needed} blocks and other profiles' prefixes leave {left} of the pool's {total}: "
            "raise context.pool_mb, or restart context after changing the profiles"
        )
        for waiting in hopeless:
            self.waiting.remove(waiting.submit.request_id)
            self._post.reject(waiting.submit.request_id, reason, None)

    def _candidates(self, waiting: Waiting, profile: Profile) -> list[tuple[Sequence, list[Entry]]]:
        """In the order of preference: a fork of its stream, the plain request."""
        parent, now = self._parent(waiting), self._clock()
        plain = opening.plain(self._ledger, waiting, profile, now)
        if parent is None or waiting.paused is not None:
            return [plain]
        return [(opening.fork(self._ledger, waiting, profile, parent, now), []), plain]

    def _begin(self, waiting: Waiting, sequence: Sequence, entries: list[Entry]) -> None:
        self.waiting.remove(sequence.request_id)
        if waiting.paused is None:
            self._post.gateway(accepted(sequence))
        self.open(sequence, entries)

    def _others(self) -> bool:
        """Whether somebody may still make room."""
        ledger = self._ledger
        return bool(ledger.held) or any(sequence.kind != "stream" for sequence in ledger.live.values())

    def _has_room(self, sequence: Sequence) -> bool:
        """Only a request needs a place beside its blocks."""
        free = len(answering(self._ledger)) < self._ledger.limits.max_sequences
        return (free or sequence.kind == "prefix") and self._ledger.can_open(sequence)

    def _make_room(self, sequence: Sequence) -> bool:
        """For a critical request: preempt whom it takes. False while their blocks are still to come."""
        if sequence.severity < CRITICAL:
            return False
        for victim in victims(self._ledger, sequence, self._profiles.serves):
            _log.info("preempted", request=victim.request_id, by=sequence.request_id or sequence.profile)
            self.preempted += 1
            self.waiting.pause(victim)
            self._ledger.close(victim, "preempted")
            self._post.close(victim.seq, "preempted")
        return self._has_room(sequence)
