"""The life of requests: submitted, waiting, admitted, growing with each commit, finished."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from services.context.admission import WaitingQueue, refusal, sequence_for
from services.context.commits import commit_error
from services.context.ledger import Ledger
from services.context.profiles import Profile, Profiles
from services.context.replies import accepted, finished, finished_unstarted, state
from services.context.sequence import Sequence
from shared.bus.messages import (
    Commit,
    FinishReason,
    Message,
    RegisterProfile,
    Rejected,
    Role,
    SeqClose,
    Submit,
    Tokens,
)

_RETRY_MIN_S, _RETRY_MAX_S = 1.0, 60.0
_FAILED_RETRY_S = 5.0
_WRITERS: tuple[Role, ...] = ("verifier", "draft")

_log = structlog.get_logger()
Send = Callable[[Role, Message], None]


class Sessions:
    """`send` delivers to a role if it is there. `new_id` gives sequence ids that were never used before."""

    def __init__(
        self,
        ledger: Ledger,
        send: Send,
        new_id: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger = ledger
        self.limits = ledger.limits
        self.profiles = Profiles(ledger)
        self.waiting = WaitingQueue(self.limits.max_waiting)
        self._send = send
        self._new_id = new_id
        self._clock = clock
        self._typical_s = 5.0  # duration of a request, smoothed

    # --- what the gateway asks for ---

    def gateway_joined(self) -> None:
        """It submits again what it waits for; only then it gets tokens, from the first and without a gap."""
        for sequence in self.ledger.live.values():
            sequence.followed = False

    def register(self, message: RegisterProfile) -> None:
        profile, outdated = self.profiles.register(message)
        if profile is None:
            _log.warning("profile ignored: there are too many", profile=message.profile)
        elif profile.problem:
            _log.warning("profile cannot be used", profile=profile.name, problem=profile.problem)
        if outdated is not None:
            self._end(outdated, "cancelled")
        self._refuse_outdated()
        self.admit()

    def submit(self, submit: Submit) -> None:
        """A new request, or one that is known: then what was said of it so far is said again."""
        self.waiting.remove(submit.request_id)
        if self._replay(submit):
            return
        profile = self.profiles.get(submit.profile)
        reason = refusal(submit, profile, self.limits, self.ledger.pool.total)
        if reason is not None:
            self._reject(submit.request_id, reason, None)
            self.admit()  # it may have been another request before, which made room
            return
        if profile is not None:
            profile.wanted = True
        loser = self.waiting.push(submit)
        self.admit()
        if loser is not None:
            self._displace(loser)

    def cancel(self, request_id: str) -> None:
        submit = self.waiting.remove(request_id)
        sequence = self._live(request_id)
        if submit is not None:
            self._send("gateway", finished_unstarted(submit))
        elif sequence is not None:
            sequence.followed = True
            self._finish(sequence, "cancelled")

    # --- what verifier and draft report ---

    def commit(self, commit: Commit) -> None:
        """Advance a sequence. What does not fit is dropped and answered with what is true."""
        sequence = self.ledger.live.get(commit.seq)
        if sequence is None:
            self._send("verifier", SeqClose(seq=commit.seq, reason="not a live sequence"))
            return
        error = commit_error(sequence, commit, self.limits)
        if error is not None:
            _log.warning("commit dropped", seq=commit.seq, reason=error)
            self._send("verifier", sequence.snapshot())
            return
        self._advance(sequence, commit)

    def commit_failed(self, seq: int, epoch: int, reason: str) -> None:
        """The verifier cannot go on. When it speaks of an older state, it gets the present one instead."""
        sequence = self.ledger.live.get(seq)
        if sequence is None:
            return
        if epoch != sequence.epoch:
            self._send("verifier", sequence.snapshot())
            return
        _log.error("sequence failed", seq=seq, request=sequence.request_id, reason=reason)
        if sequence.request_id:
            self._finish(sequence, "failed", reason)
        else:
            self._prefix_failed(sequence, reason)

    def plane_filled(self, seq: int, kv_len: int) -> None:
        sequence = self.ledger.live.get(seq)
        if sequence is None or not sequence.draft_kv_len < kv_len <= len(sequence.tokens):
            return
        sequence.draft_kv_len = kv_len
        self.ledger.save(sequence)
        if sequence.shared and sequence.blocks[: sequence.shared] == self.ledger.pins.get(sequence.profile):
            self.profiles.drafted(sequence.profile, kv_len)

    # --- admission ---

    def admit(self) -> None:
        """Let in whoever there is room for: prefixes first, then the most severe. Nobody is overtaken for
        want of memory; who waits for a prefix holds up nobody."""
        for profile in self.profiles.all():
            prefix = self.profiles.start(profile, self._new_id, self._clock())
            if prefix is not None:
                self._to_writers(prefix.snapshot())
        for submit in self.waiting:
            wanted = self.profiles.get(submit.profile)
            if wanted is not None and wanted.ready and not self._start(submit, wanted):
                return

    def _start(self, submit: Submit, profile: Profile) -> bool:
        prefix = self.ledger.pins.get(profile.name, [])
        answering = sum(bool(live.request_id) for live in self.ledger.live.values())
        worst = profile.ring.table_size(len(submit.tokens) + submit.max_tokens) - len(prefix)
        if answering >= self.limits.max_sequences or not self.ledger.can_open(worst):
            return False
        sequence = sequence_for(submit, profile, self._new_id(), self._clock())
        self.waiting.remove(submit.request_id)
        self.ledger.open(sequence, prefix)
        self._send("gateway", accepted(sequence))
        self._to_writers(sequence.snapshot())
        return True

    def _refuse_outdated(self) -> None:
        """Requests that waited for a prefix that is another now."""
        for submit in self.waiting:
            profile = self.profiles.get(submit.profile)
            reason = refusal(submit, profile, self.limits, self.ledger.pool.total)
            if reason is not None:
                self.waiting.remove(submit.request_id)
                self._reject(submit.request_id, f"the profile has changed: {reason}", _RETRY_MIN_S)

    def _displace(self, submit: Submit) -> None:
        """The queue was full; unless it has started in the meantime, this request must come again."""
        if self._live(submit.request_id) is None and submit.request_id not in self.waiting:
            reason = f"{self.limits.max_waiting} requests of equal or higher severity are waiting"
            self._reject(submit.request_id, reason, self._retry_s())

    def _retry_s(self) -> float:
        rounds = 1 + len(self.waiting) / self.limits.max_sequences
        return min(_RETRY_MAX_S, max(_RETRY_MIN_S, rounds * self._typical_s))

    # --- commits ---

    def _advance(self, sequence: Sequence, commit: Commit) -> None:
        index = sequence.answer_len
        sequence.tokens += commit.tokens
        sequence.kv_len += commit.written
        sequence.epoch += 1
        sequence.passes += 1
        sequence.drafted += commit.drafted
        sequence.accepted += commit.accepted
        finish = _end_of(sequence, commit)
        if finish is None:
            first = self.ledger.grow(sequence)
            self.ledger.save(sequence)
            self._to_writers(state(sequence, commit.tokens, first))
        if commit.tokens and sequence.followed:
            tokens = Tokens(request_id=sequence.request_id, index=index, tokens=commit.tokens)
            self._send("gateway", tokens)
        if finish is not None:
            self._complete(sequence, finish)

    def _complete(self, sequence: Sequence, finish: FinishReason) -> None:
        if sequence.request_id:
            self._typical_s += 0.2 * (self._clock() - sequence.started - self._typical_s)
            self._finish(sequence, finish)
            return
        self.profiles.computed(sequence)
        _log.info("prefix pinned", profile=sequence.profile, tokens=sequence.kv_len)
        self._end(sequence, finish)
        self.admit()

    def _prefix_failed(self, sequence: Sequence, reason: str) -> None:
        self.profiles.failed(sequence)
        self._end(sequence, "failed")
        why = f'the prefix of profile "{sequence.profile}" could not be computed: {reason}'
        for submit in self.waiting:
            if submit.profile == sequence.profile:
                self.waiting.remove(submit.request_id)
                self._reject(submit.request_id, why, _FAILED_RETRY_S)

    # --- ends and replays ---

    def _finish(self, sequence: Sequence, reason: FinishReason, detail: str = "") -> None:
        self._end(sequence, reason)
        if sequence.followed:
            self._send("gateway", finished(sequence, detail))
        self.admit()

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        self.ledger.close(sequence, reason)
        self._to_writers(SeqClose(seq=sequence.seq, reason=reason))

    def _replay(self, submit: Submit) -> bool:
        """Whether the request is known. If so, its tokens are sent again from the first."""
        sequence = self._live(submit.request_id) or self.ledger.finished.get(submit.request_id)
        if sequence is None:
            return False
        if not _same(sequence, submit):
            return self._other_request(sequence)
        sequence.followed = True
        sequence.label = submit.label
        self._send("gateway", accepted(sequence))
        if sequence.answer_len:
            self._send("gateway", Tokens(request_id=submit.request_id, index=0, tokens=sequence.answer))
        if sequence.finish:
            self._send("gateway", finished(sequence, ""))
        return True

    def _other_request(self, sequence: Sequence) -> bool:
        """An id that is used for something else now: the gateway was configured anew and asks again. Nobody
        waits for the old answer any more; no token of it is sent behind the new request's `Accepted`."""
        if sequence.finish:
            self.ledger.forget(sequence.request_id)
        else:
            _log.info("request replaced", request=sequence.request_id, seq=sequence.seq)
            self._end(sequence, "cancelled")
        return False

    def _live(self, request_id: str) -> Sequence | None:
        return next((s for s in self.ledger.live.values() if s.request_id == request_id), None)

    def _reject(self, request_id: str, reason: str, retry_after_s: float | None) -> None:
        _log.warning("request refused", request=request_id, reason=reason, retry_after_s=retry_after_s)
        rejected = Rejected(request_id=request_id, reason=reason, retry_after_s=retry_after_s)
        self._send("gateway", rejected)

    def _to_writers(self, message: Message) -> None:
        for role in _WRITERS:
            self._send(role, message)


def _end_of(sequence: Sequence, commit: Commit) -> FinishReason | None:
    """How the sequence ends with this commit; None when it goes on."""
    if sequence.max_tokens == 0:
        return "length" if sequence.kv_len == len(sequence.tokens) else None
    if commit.finish is not None:
        return commit.finish
    return "length" if sequence.answer_len == sequence.max_tokens else None


def _same(sequence: Sequence, submit: Submit) -> bool:
    prompt = sequence.tokens[: sequence.prompt_len]
    return prompt == submit.tokens and sequence.max_tokens == submit.max_tokens
