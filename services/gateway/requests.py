"""Alarms on their way through context: submitted, streamed, answered; again when somebody died in between.

Everything here can be lost at any moment: the journal knows which alarms are unanswered, context replays a
request that it knows and computes one that it does not, and both give the same tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from services.gateway.alarm import Alarm, AlarmId, parse_alarm
from services.gateway.answers import error_answer, final_answer, stream_delta
from services.gateway.journal import Journal, State, Waiting
from services.gateway.patience import QUIET_S, retry_wait
from services.gateway.payload import PayloadError
from services.gateway.prompt import Prompter
from services.gateway.request import Request
from services.gateway.sampling import sampling_for
from services.gateway.stops import AnswerDecoder
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Accepted, Finished, RegisterProfile, Rejected, Submit, Tokens
from shared.config.errors import RinglineError
from shared.config.quote import one_line
from shared.config.settings import Profile, Settings
from shared.config.topics import STREAM

LINES_FIRST_S = 2.0  # that long an alarm waits for the lines that its asset logged before it
ATTEMPTS = 3  # of an alarm whose sequence failed
_SHORTEST_S = 0.001  # of a deadline that is over

_log = structlog.get_logger()


class Requests:
    """`send` is dropped by the bus while it is not joined; `stream` is QoS 0 and may be dropped too."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        prompter: Prompter,
        send: Callable[[Message], None],
        stream: Callable[[str, bytes], None],
    ) -> None:
        self._settings = settings
        self._profiles = {profile.name: profile for profile in settings.profiles}
        self._journal = journal
        self._prompter = prompter
        self._send = send
        self._stream = stream
        self._live: dict[str, Request] = {}
        self._joined = False

    # --- the bus comes and goes ---

    def introduce(self) -> None:
        """Tell context the profiles, before anything that needs them; it may never have heard of them."""
        for profile in self._profiles.values():
            prefix = self._prompter.prefix(profile)
            self._send(RegisterProfile(profile=profile.name, tokens=prefix, window=profile.window))

    def joined(self) -> None:
        """Tell context everything that is unanswered."""
        self._joined = True
        for request in self._live.values():
            self._submit(request)

    def lost(self) -> None:
        self._joined = False

    def fill(self) -> None:
        """Submit waiting alarms, critical ones first, while there is room in flight."""
        room = self._settings.gateway.max_in_flight - len(self._live)
        if not self._joined or room <= 0:
            return
        for row in self._journal.waiting(room, {request.row.seq for request in self._live.values()}):
            if self._has_lines_ahead(row):
                continue
            request = self._begin(row)
            if request is not None:
                self._live[row.request_id] = request
                self._journal.submitted(row.seq)
                self._submit(request)

    def _has_lines_ahead(self, row: Waiting) -> bool:
        """Whether to wait a moment for what the asset logged before its alarm; never long."""
        fresh = abs(time.time() - row.received) < LINES_FIRST_S
        return bool(row.stream) and fresh and self._journal.lines.waits(row.stream, row.received)

    def tick(self) -> None:
        """Submit again what a rejection postponed and what nobody has spoken of for long."""
        now = time.monotonic()
        for request in self._live.values():
            due = request.heard + QUIET_S if request.resend_at is None else request.resend_at
            if self._joined and now >= due:
                self._submit(request)

    def forget(self) -> None:
        """Start again from the journal: a change that was to be written there failed."""
        self._live.clear()

    def _begin(self, row: Waiting) -> Request | None:
        """None when the alarm can no longer be asked about: then it has an error answer."""
        stem = row.request_id.partition(".")[0]
        profile = self._profiles.get(row.profile)
        if profile is None:
            reason = f'profile "{row.profile}" is no longer configured'
            self._journal.finish(row.seq, error_answer(stem, None, reason), State.FAILED)
            return None
        try:
            alarm = parse_alarm(row.payload, len(row.payload))
            prompt = self._prompter.prompt(profile, alarm, on_stream=bool(row.stream))
        except (PayloadError, RinglineError) as error:
            self._journal.finish(row.seq, error_answer(stem, None, str(error)), State.FAILED)
            return None
        alarm_id = stem if alarm.id is None else alarm.id
        now = time.monotonic()
        return Request(
            row=row,
            alarm=alarm,
            alarm_id=alarm_id,
            submit=self._make_submit(row, profile, alarm, prompt.tokens, alarm_id),
            decoder=self._decoder(profile.stop),
            arrived=now - max(0.0, time.time() - row.received),
            submitted=now,
            heard=now,
            cut=prompt.cut,
        )

    def _make_submit(
        self, row: Waiting, profile: Profile, alarm: Alarm, tokens: list[int], alarm_id: AlarmId
    ) -> Submit:
        return Submit(
            request_id=row.request_id,
            profile=profile.name,
            tokens=tokens,
            max_tokens=profile.max_tokens,
            stop_tokens=self._prompter.stop_tokens,
            stop=list(profile.stop),
            sampling=sampling_for(profile, row.topic, alarm),
            severity=row.severity,
            label=one_line(str(alarm_id), 128),
            stream=row.stream,
            deadline_s=profile.deadline_s,
        )

    def _decoder(self, stops: Sequence[str]) -> AnswerDecoder:
        return AnswerDecoder(self._prompter.decoder(), stops)

    def _submit(self, request: Request) -> None:
        request.heard = time.monotonic()
        request.resend_at = None
        submit = request.submit
        if submit.deadline_s:  # it is counted from the first time, and 0 would mean that there is none
            left = max(_SHORTEST_S, submit.deadline_s - (request.heard - request.submitted))
            submit = submit.model_copy(update={"deadline_s": left})
        self._send(submit)

    # --- what context says ---

    def handle(self, message: Message) -> None:
        """A message about a request; one about a request that is not ours (any more) is ignored."""
        if not isinstance(message, Accepted | Rejected | Tokens | Finished):
            return
        request = self._live.get(message.request_id)
        if request is None:
            return
        request.heard = time.monotonic()
        match message:
            case Accepted():
                request.restart(self._decoder(request.submit.stop))
            case Tokens():
                self._take_tokens(request, message)
            case Finished():
                self._finish(request, message)
            case Rejected():
                self._rejected(request, message)

    def _take_tokens(self, request: Request, message: Tokens) -> None:
        new = message.tokens[max(0, request.count - message.index) :]
        if message.index > request.count:  # something between was lost: a replay begins at 0
            self._replay(request)
            return
        if not new:
            return
        request.first = request.first or time.monotonic()
        request.count += len(new)
        try:
            self._emit(request, request.decoder.push(new))
        except ValueError as error:
            self._fail(request, str(error))

    def _emit(self, request: Request, text: str) -> None:
        delta = request.push(text)
        if delta is not None:
            self._stream(request.row.out_topic + STREAM, stream_delta(request.alarm_id, *delta))

    def _replay(self, request: Request) -> None:
        request.gaps += 1
        if request.gaps > ATTEMPTS:
            self._fail(request, "its tokens did not arrive completely")
        else:
            self._submit(request)

    def _finish(self, request: Request, message: Finished) -> None:
        if request.count < message.answer_tokens:
            self._replay(request)
        elif message.reason == "failed":
            self._fail(request, message.detail or message.reason)
        else:  # also when its deadline left it no time for a text: it says so
            self._answer(request, message)

    def _answer(self, request: Request, message: Finished) -> None:
        self._emit(request, request.decoder.finish(complete=message.reason == "stop"))
        timing = request.timing(time.monotonic())
        text = request.text.strip()
        payload = final_answer(
            request.alarm_id, request.alarm, request.cut, text, self._prompter.model, message, timing
        )
        self._end(request, payload, State.ANSWERED)
        _log.info(
            "answered",
            **request.label,
            severity=request.row.severity,
            finish=message.reason,
            prompt_tokens=message.prompt_tokens,
            answer_tokens=message.answer_tokens,
            ttft_ms=round(timing.ttft_ms),
            duration_ms=round(timing.duration_ms),
        )

    def _rejected(self, request: Request, message: Rejected) -> None:
        if message.retry_after_s is None:
            self._give_up(request, message.reason)
            return
        wait = retry_wait(message.retry_after_s)
        request.resend_at = time.monotonic() + wait
        _log.info(
            "context is full, submitting again later", **request.label, reason=message.reason, wait_s=wait
        )

    def _fail(self, request: Request, reason: str) -> None:
        """This attempt is over; the next one is another request to context."""
        if request.row.attempts + 1 >= ATTEMPTS:
            self._give_up(request, reason)
            return
        _log.warning("answering failed, trying again", **request.label, reason=reason)
        self._journal.try_again(request.row.seq)
        del self._live[request.row.request_id]

    def _give_up(self, request: Request, reason: str) -> None:
        _log.error("no answer", **request.label, reason=reason)
        self._end(request, error_answer(request.alarm_id, request.alarm, reason), State.FAILED)

    def _end(self, request: Request, payload: bytes, outcome: State) -> None:
        self._journal.finish(request.row.seq, payload, outcome)
        del self._live[request.row.request_id]
