"""Alarms on a stream and alarms with a deadline, on their way through context."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from services.gateway.alarm import Alarm
from services.gateway.dedupe import Arrival
from services.gateway.journal import Entry, Journal, State
from services.gateway.journal_lines import Line
from services.gateway.prompt import Prompt
from services.gateway.requests import LINES_FIRST_S, Requests
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Finished, RegisterProfile, Submit, Tokens
from shared.config.settings import Profile
from tests.unit.gateway_lines_world import PROFILE, configured, put


class Letters:
    """A prompter and decoder whose tokens are characters; a question on a stream begins with a bar."""

    model = "letters"
    stop_tokens: ClassVar[list[int]] = [2]

    def prefix(self, _profile: Profile) -> list[int]:
        return [1]

    def prompt(self, _profile: Profile, alarm: Alarm, on_stream: bool) -> Prompt:
        return Prompt([1, *map(ord, ("|" if on_stream else "") + alarm.text)], cut=False)

    def decoder(self) -> Letters:
        return Letters()

    def push(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))

    def finish(self) -> str:
        return ""


class Desk:
    """Requests with a journal, and what they send."""

    def __init__(self, directory: Path, **profile_settings: object) -> None:
        config = configured()
        profile = PROFILE.model_copy(update=profile_settings)
        config = config.model_copy(update={"profiles": (profile,)})
        self.journal = Journal(directory / "journal.db", 100)
        self.sent: list[Message] = []
        prompter: Any = Letters()
        self.requests = Requests(config, self.journal, prompter, self.sent.append, lambda *_: None)
        self.requests.introduce()
        self.requests.joined()

    def alarm(self, stream: str = "", age_s: float = 0.0) -> None:
        arrival = Arrival(bytes(16), None, None, time.time() - age_s)
        self.journal.add(Entry(arrival, "alarm/a", b"hot", 1, "p", "out", stream=stream))
        self.requests.fill()

    @property
    def submits(self) -> list[Submit]:
        return [message for message in self.sent if isinstance(message, Submit)]

    def finish(self, reason: Any, text: str = "") -> None:
        name = self.submits[-1].request_id
        if text:
            self.requests.handle(Tokens(request_id=name, index=0, tokens=list(map(ord, text))))
        names = ("prompt_tokens", "cached_tokens", "passes", "drafted", "accepted")
        figures: dict[str, Any] = dict.fromkeys(names, 0)
        self.requests.handle(Finished(request_id=name, reason=reason, answer_tokens=len(text), **figures))

    def outcome(self) -> tuple[State, dict[str, Any]]:
        (out,) = self.journal.outgoing(9)
        return out.outcome, json.loads(out.payload)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_request_names_its_stream_and_a_plain_one_names_none(desk: Desk) -> None:
    """Profiles come first; only a question on a stream has the line that begins it."""
    desk.alarm()
    desk.alarm("a")
    assert isinstance(desk.sent[0], RegisterProfile)
    assert [(submit.stream, submit.tokens[1]) for submit in desk.submits] == [("", ord("h")), ("a", ord("|"))]
    assert [submit.deadline_s for submit in desk.submits] == [0.0, 0.0]


def test_an_alarm_waits_for_the_lines_before_it_but_not_for_those_behind(desk: Desk) -> None:
    """Nor for those of another asset."""
    put(desk.journal, "other", stream="b")
    (line,) = put(desk.journal, "before")
    desk.alarm("a")
    assert desk.submits == []
    put(desk.journal, "behind")
    desk.journal.lines.bundle(desk.journal.lines.unbundled("a", 1))
    desk.journal.lines.read("a", line)
    desk.requests.fill()
    assert len(desk.submits) == 1


def test_an_alarm_waits_for_lines_two_seconds_at_most(desk: Desk) -> None:
    """Lines that context refuses hold up no alarm."""
    desk.journal.lines.add(Arrival(bytes(16), None, None, 0.0), Line("log/a", "a", "p", "old\n"))
    desk.alarm("a", age_s=LINES_FIRST_S - 1)
    assert desk.submits == []
    desk.alarm("a", age_s=LINES_FIRST_S + 0.1)
    assert len(desk.submits) == 1


def test_a_deadline_is_counted_from_the_first_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent again has less of it, and never none, which would mean no deadline."""
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now, time=time.time)
    monkeypatch.setattr("services.gateway.requests.time", clock)
    desk = Desk(tmp_path, deadline_s=30)
    desk.alarm()
    for later in (110.0, 140.0):
        now = later
        desk.requests.joined()
    first, second, third = (submit.deadline_s for submit in desk.submits)
    assert (first, second) == (30.0, 20.0)
    assert 0 < third < 0.1
    assert len({submit.request_id for submit in desk.submits}) == 1


def test_an_answer_is_published_up_to_its_stop_string(tmp_path: Path) -> None:
    """The verifier ends the answer with the token that completes it, which may hold more text."""
    desk = Desk(tmp_path, stop=("##", "no"), temperature=0.7, seed=4)
    desk.alarm()
    (submit,) = desk.submits
    assert (submit.stop, submit.sampling.temperature) == (["##", "no"], 0.7)
    desk.finish("stop", "the pump.## and")
    state, published = desk.outcome()
    assert (state, published["finish"], published["text"]) == (State.ANSWERED, "stop", "the pump.")


@pytest.mark.parametrize("reason", ["length", "deadline"])
def test_what_might_have_become_a_stop_string_is_text_when_the_answer_ends(
    tmp_path: Path, reason: str
) -> None:
    desk = Desk(tmp_path, stop=("##",))
    desk.alarm()
    desk.finish(reason, "pump #")
    assert desk.outcome()[1]["text"] == "pump #"


def test_an_alarm_that_is_tried_again_is_sampled_as_before(tmp_path: Path) -> None:
    """Under another request id; and after a restart, from the journal."""
    desk = Desk(tmp_path, temperature=0.7)
    desk.alarm()
    desk.finish("failed")
    desk.requests.fill()
    desk.requests.forget()
    desk.requests.fill()
    assert len({submit.request_id for submit in desk.submits}) == 2
    assert len({submit.sampling.seed for submit in desk.submits}) == 1


@pytest.mark.parametrize("reason", ["deadline", "cancelled"])
@pytest.mark.parametrize("text", ["", "the pump"])
def test_an_answer_that_was_ended_early_is_an_answer_and_says_why(desk: Desk, reason: str, text: str) -> None:
    """With the text there is; trying again would end the same way."""
    desk.alarm()
    desk.finish(reason, text)
    state, published = desk.outcome()
    assert (state, published["finish"], published["text"]) == (State.ANSWERED, reason, text)


def test_a_failed_answer_is_tried_again(desk: Desk) -> None:
    """Under another request id, also when there was a text."""
    desk.alarm()
    desk.finish("failed", "the pump")
    desk.requests.fill()
    assert len({submit.request_id for submit in desk.submits}) == 2
    assert desk.journal.outgoing(9) == []
