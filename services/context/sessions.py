"""The life of requests: submitted, waiting, admitted, growing with each commit, finished."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from services.context import chains
from services.context.admission import refusal
from services.context.admitting import RETRY_MIN_S, Admitting
from services.context.commits import commit_error
from services.context.ledger import Ledger
from services.context.post import Post, Send
from services.context.profiles import Profiles
from services.context.replies import finished, finished_waiting, replay, state
from services.context.sequence import Sequence
from services.context.streams import Streams
from services.context.waiting import Waiting
from shared.bus.messages.requests import FinishReason, RegisterProfile, Submit, Tokens
from shared.bus.messages.sequences import Commit, SeqClose

_FAILED_RETRY_S = 5.0

_log = structlog.get_logger()


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
        self._post = Post(send)
        self._clock = clock
        self.admitting = Admitting(ledger, self.profiles, self._post, new_id, clock)
        self.waiting = self.admitting.waiting
        self.streams = Streams(ledger, self.profiles, self.admitting, self._post, clock)

    # --- what the gateway asks for ---

    def gateway_joined(self) -> None:
        """It submits again what it waits for; only then it gets tokens, from the first and without a gap."""
        paused = [waiting.paused for waiting in self.waiting if waiting.paused is not None]
        for sequence in [*self.ledger.live.values(), *paused]:
            sequence.followed = False

    def register(self, message: RegisterProfile) -> None:
        before = self.profiles.get(message.profile)
        waited_for = {waiting.submit.profile for waiting in self.waiting}
        profile, outdated = self.profiles.register(message, waited_for)
        if profile is None:
            _log.warning("profile ignored: there are too many", profile=message.profile)
        elif profile.problem:
            _log.warning("profile cannot be used", profile=profile.name, problem=profile.problem)
        if before is not None and before is not profile:
            self.streams.profile_changed(message.profile)
        if outdated is not None:
            self._end(outdated, "cancelled")
        self._refuse_outdated()
        self.admit()

    def submit(self, submit: Submit) -> None:
        """A new request, or one that is known: then what was said of it so far is said again."""
        if self._known(submit):
            return
        self.waiting.remove(submit.request_id)
        profile = self.profiles.get(submit.profile)
        reason = refusal(submit, profile, self.limits, self.ledger.pool.total)
        if reason is not None:
            self._post.reject(submit.request_id, reason, None)
            self.admit()  # it may have been another request before, which made room
            return
        if profile is not None:
            profile.wanted = True
        self.streams.use(submit.stream)
        loser = self.waiting.push(submit, self._deadline(submit))
        self.admit()
        if loser is not None:
            self._displace(loser)

    def cancel(self, request_id: str) -> None:
        waiting = self.waiting.remove(request_id)
        sequence = self._live(request_id)
        if waiting is not None:
            self._post.gateway(finished_waiting(waiting, "cancelled"))
        elif sequence is not None:
            sequence.followed = True
            self._finish(sequence, "cancelled")

    def expire(self) -> None:
        """End every request whose deadline has passed."""
        now = self._clock()
        for waiting in self.waiting.overdue(now):
            self.waiting.remove(waiting.submit.request_id)
            self._post.gateway(finished_waiting(waiting, "deadline"))
        late = [s for s in self.ledger.live.values() if s.deadline is not None and s.deadline <= now]
        for sequence in late:
            self._finish(sequence, "deadline")

    # --- what verifier and draft report ---

    def commit(self, commit: Commit) -> None:
        """Advance a sequence. What does not fit is dropped and answered with what is true."""
        sequence = self.ledger.live.get(commit.seq)
        if sequence is None:
            self._post.verifier(SeqClose(seq=commit.seq, reason="not a live sequence"))
            return
        error = commit_error(sequence, commit, self.limits)
        if error is not None:
            _log.warning("commit dropped", seq=commit.seq, reason=error)
            self._post.verifier(sequence.snapshot())
            return
        self._advance(sequence, commit)

    def commit_failed(self, seq: int, epoch: int, reason: str) -> None:
        """The verifier cannot go on. When it speaks of an older state, it gets the present one instead."""
        sequence = self.ledger.live.get(seq)
        if sequence is None:
            return
        if epoch != sequence.epoch:
            self._post.verifier(sequence.snapshot())
            return
        _log.error("sequence failed", seq=seq, request=sequence.request_id, reason=reason)
        if sequence.kind == "prefix":
            self._prefix_failed(sequence, reason)
            return
        if sequence.kind == "stream":
            self.streams.close(sequence.stream)
            return
        self._finish(sequence, "failed", reason)

    def plane_filled(self, seq: int, kv_len: int) -> None:
        sequence = self.ledger.live.get(seq)
        if sequence is None or not sequence.draft_kv_len < kv_len <= sequence.known:
            return
        before, sequence.draft_kv_len = sequence.draft_kv_len, kv_len
        self.ledger.save(sequence)
        chains.drafted(self.ledger.cache, sequence, before)
        pin = self.ledger.pins.get(sequence.profile)
        if pin and sequence.blocks[: len(pin)] == pin:
            self.profiles.drafted(sequence.profile, kv_len)

    # --- admission ---

    def admit(self) -> None:
        self.admitting.admit()

    def _refuse_outdated(self) -> None:
        """Requests that waited for a prefix that is another now."""
        for waiting in self.waiting:
            reason = self._outdated(waiting)
            if reason is not None:
                self.waiting.remove(waiting.submit.request_id)
                reason = f"the profile has changed: {reason}"
                self._post.reject(waiting.submit.request_id, reason, RETRY_MIN_S)

    def _outdated(self, waiting: Waiting) -> str | None:
        profile = self.profiles.get(waiting.submit.profile)
        if profile is not None and waiting.paused is not None and waiting.paused.ring != profile.ring:
            return "what was said so far was said with another window"
        return refusal(waiting.submit, profile, self.limits, self.ledger.pool.total)

    def _displace(self, submit: Submit) -> None:
        """The queue was full; unless it has started in the meantime, this request must come again."""
        if self._live(submit.request_id) is None and submit.request_id not in self.waiting:
            reason = f"{self.limits.max_waiting} requests of equal or higher severity are waiting"
            self._post.reject(submit.request_id, reason, self.admitting.retry_s())

    def _deadline(self, submit: Submit) -> float | None:
        return self._clock() + submit.deadline_s if submit.deadline_s else None

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
            self._post.writers(state(sequence, commit.tokens, first))
        if commit.tokens and sequence.followed:
            tokens = Tokens(request_id=sequence.request_id, index=index, tokens=commit.tokens)
            self._post.gateway(tokens)
        if finish is not None:
            self._complete(sequence, finish, commit.tokens)
        elif sequence.kind == "stream" and not sequence.pending and self.admitting.asked(sequence.stream):
            self.admit()

    def _complete(self, sequence: Sequence, finish: FinishReason, last: list[int]) -> None:
        if sequence.kind == "request":
            self.admitting.took(self._clock() - sequence.started)
            self._finish(sequence, finish, last=last)
            return
        self.profiles.computed(sequence)
        _log.info("prefix pinned", profile=sequence.profile, tokens=sequence.kv_len)
        self._end(sequence, finish)
        self.admit()

    def _prefix_failed(self, sequence: Sequence, reason: str) -> None:
        self.profiles.failed(sequence)
        self._end(sequence, "failed")
        why = f'the prefix of profile "{sequence.profile}" could not be computed: {reason}'
        for waiting in self.waiting:
            if waiting.submit.profile == sequence.profile:
                self.waiting.remove(waiting.submit.request_id)
                self._post.reject(waiting.submit.request_id, why, _FAILED_RETRY_S)

    # --- ends and replays ---

    def _finish(
        self, sequence: Sequence, reason: FinishReason, detail: str = "", last: list[int] | None = None
    ) -> None:
        self._end(sequence, reason, last)
        if sequence.followed:
            self._post.gateway(finished(sequence, detail))
        self.admit()

    def _end(self, sequence: Sequence, reason: FinishReason, last: list[int] | None = None) -> None:
        self.ledger.close(sequence, reason)
        self._post.close(sequence.seq, reason, last)

    def _known(self, submit: Submit) -> bool:
        """Whether the request is live, paused or just finished. If so, what was said is said again."""
        waiting = self.waiting.get(submit.request_id)
        paused = waiting.paused if waiting is not None else None
        sequence = paused or self._live(submit.request_id) or self.ledger.finished.get(submit.request_id)
        if sequence is None:
            return False
        if not _same(sequence, submit):
            return self._other_request(sequence)
        sequence.followed = True
        sequence.deadline = self._deadline(submit)
        sequence.label = submit.label
        if paused is not None:
            self.waiting.pause(paused)
        for message in replay(sequence):
            self._post.gateway(message)
        return True

    def _other_request(self, sequence: Sequence) -> bool:
        """An id that is used for something else now: the gateway was configured anew and asks again. Nobody
        waits for the old answer any more; no token of it is sent behind the new request's `Accepted`."""
        if self.ledger.finished.get(sequence.request_id) is sequence:
            self.ledger.forget(sequence.request_id)
        elif not sequence.finish:
            _log.info("request replaced", request=sequence.request_id, seq=sequence.seq)
            self._end(sequence, "cancelled")
        return False

    def _live(self, request_id: str) -> Sequence | None:
        return next((s for s in self.ledger.live.values() if s.request_id == request_id), None)


def _end_of(sequence: Sequence, commit: Commit) -> FinishReason | None:
    """How the sequence ends with this commit; None when it goes on."""
    if sequence.kind == "stream":
        return None
    if sequence.kind == "prefix":
        return "length" if sequence.pending == 0 else None
    if commit.finish is not None:
        return commit.finish
    return "length" if sequence.answer_len == sequence.max_tokens else None


def _same(sequence: Sequence, submit: Submit) -> bool:
    """Of a fork only the question can be compared: it stands behind the stream's tokens."""
    prompt, wanted = sequence.tokens[: sequence.prompt_len - sequence.first], submit.tokens
    if sequence.forked:
        wanted = wanted[sequence.ring.sink :]
        prompt = prompt[-len(wanted) :]
    asked = submit.max_tokens, submit.stop, submit.sampling
    return prompt == wanted and asked == (sequence.max_tokens, sequence.stop, sequence.sampling)
