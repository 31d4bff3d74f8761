"""A journal that fails for log lines fails for them alone; without room it takes no lines either."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.gateway.app import Gateway
from services.gateway.dedupe import Arrival
from services.gateway.inbox import Inbox
from services.gateway.intake import Intake
from services.gateway.journal import Entry, Journal, JournalFull, State
from services.gateway.prompt import Prompt
from services.gateway.routes import RouteTable
from shared.bus.events import Joined
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Welcome
from shared.bus.messages.requests import StreamAppend, StreamRefused, Submit
from shared.config.settings import Route
from tests.unit.gateway_lines_world import FakeContext, configured, delivery, made_appends, put

LOG = Route(topic="log/+", profile="p", stream="{1}")
ALARM = Route(topic="alarm/+", profile="p", stream="{1}", answer="out/{1}")
JOINED = Joined(Welcome(context_incarnation=1, generation=1))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db", 100)


class Desk:
    """A gateway that is not connected to anything, and what it sends to context."""

    def __init__(self, journal: Journal) -> None:
        config = configured(LOG, ALARM)
        self.journal = journal
        self.sent: list[Message] = []
        bus: Any = SimpleNamespace(send=self.sent.append, note="")
        prompter: Any = SimpleNamespace(
            stop_tokens=[],
            prefix=lambda _profile: [1],
            prompt=lambda *_, **__: Prompt([1, 2], cut=False),
            line=lambda _profile, text: ([len(text)], False),
            decoder=lambda: None,
        )
        self.gateway = Gateway(config, RouteTable(config), journal, prompter, bus)

    def alarm(self) -> None:
        arrival = Arrival(bytes(16), None, None, 0.0)
        self.journal.add(Entry(arrival, "alarm/a", b"hot", 1, "p", "out/a", stream="a"))

    def sent_of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.sent if isinstance(message, kind)]


def fail(*_: object) -> Any:
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize("method", ["bundle", "open", "streams", "opened", "waiting"])
def test_lines_that_cannot_be_noted_keep_no_alarm_waiting(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Neither when context joins nor later; the lines go on when the journal can."""
    desk = Desk(journal)
    put(journal, "line")
    desk.alarm()
    with monkeypatch.context() as patch:
        patch.setattr(journal.lines, method, fail)
        desk.gateway._appends.counts.read = 1  # worth a report
        desk.gateway._appends._reported_at = -1000.0
        desk.gateway._handle([JOINED])
        desk.gateway._advance()
        assert len(desk.sent_of(Submit)) == 1
    monkeypatch.setattr("services.gateway.app._RETRY_S", 0.0)
    desk.gateway._line_trouble._until = 0.0
    desk.gateway._handle([JOINED])
    desk.gateway._advance()
    assert len(desk.sent_of(StreamAppend)) >= 1


def test_a_refusal_that_cannot_be_noted_is_heard_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append is sent again, the alarm that is under way stays so."""
    desk = Desk(journal)
    put(journal, "one", "two")
    desk.gateway._handle([JOINED])
    desk.gateway._advance()
    desk.alarm()
    desk.gateway._advance()
    (append,) = desk.sent_of(StreamAppend)
    assert isinstance(append, StreamAppend)
    refused = StreamRefused(stream="a", serial=append.serial, reason="why", retry_after_s=None)
    with monkeypatch.context() as patch:
        patch.setattr(journal.lines, "part", fail)
        desk.gateway._handle([refused])
    desk.gateway._line_trouble._until = 0.0
    desk.gateway._advance()
    assert desk.sent_of(StreamAppend) == [append, append]
    assert len(desk.sent_of(Submit)) == 1


def test_lines_of_a_profile_that_is_gone_wait_and_stop_nothing(journal: Journal) -> None:
    """The journal had no room for the new routes at the start."""
    context = FakeContext()
    config = configured()
    appends = made_appends(journal, context, config.model_copy(update={"profiles": config.profiles[1:]}))
    put(journal, "line")
    appends.fill()
    appends.fill()
    assert [message for message in context.sent if isinstance(message, StreamAppend)] == []
    assert journal.lines.waiting() == 1


class Link:
    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def acknowledge(self, item: Any) -> bool:
        self.acknowledged.append(item.packet)
        return True


def inbox_of(journal: Journal, link: Any) -> Inbox:
    config = configured(LOG, ALARM)
    intake = Intake(config, RouteTable(config), journal)
    return Inbox(journal, intake, link, made_appends(journal, FakeContext(), config).make_room)


def test_a_full_disk_takes_no_lines_and_a_burst_of_them_has_its_bound(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay with the broker; taken, they are acknowledged, and no more than the bound are kept."""
    link = Link()
    inbox = inbox_of(journal, link)
    inbox.hold([delivery(b"line %d" % number, packet=number) for number in range(1, 301)])

    def full(_size: int) -> None:
        raise JournalFull("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "check_disk", full)
        inbox.take()
    assert (link.acknowledged, journal.lines.waiting()) == ([], 0)
    for _ in range(12):
        monkeypatch.setattr(inbox, "_retry_at", 0.0)
        inbox.take()
    assert link.acknowledged == list(range(1, 301))
    assert journal.lines.waiting() == 100


def test_lines_take_no_room_of_alarms_and_alarms_none_of_lines(journal: Journal) -> None:
    """A full table of lines takes alarms; they are remembered as told to the broker."""
    link = Link()
    inbox = inbox_of(journal, link)
    inbox.hold([delivery(b"line %d" % number, packet=number) for number in range(1, 201)])
    inbox.hold([delivery(b"hot %d" % number, b"alarm/a", packet=number) for number in range(201, 301)])
    inbox.take()
    assert link.acknowledged == list(range(1, 301))
    assert journal.counts() == {State.RECEIVED: 100}
    assert journal.lines.waiting() == 100
