"""A journal that takes no more stops taking, nothing else; what has no place stays with the broker."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from services.gateway import inbox as module
from services.gateway import journal_file
from services.gateway.events import Delivery
from services.gateway.inbox import HELD, Inbox
from services.gateway.intake import Intake
from services.gateway.journal import Journal, State
from services.gateway.mqtt import MqttLink
from services.gateway.routes import RouteTable
from shared.config.settings import Profile, Route, Settings

ROOM = 100
SETTINGS = Settings(
    profiles=(Profile(name="p", language="en", system="s"),),
    routes=(
        Route(topic="plant/+/alarm", profile="p", answer="out/{1}"),
        Route(topic="plant/+/log", profile="p", stream="{1}"),
    ),
)


class Link:
    """A broker that notes what it is told."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.dropped = 0
        self.connection = 1

    def acknowledge(self, delivery: Delivery) -> bool:
        there = bool(delivery.qos) and delivery.connection == self.connection
        if there:
            self.acknowledged.append(delivery.packet)
        return there

    def drop_connection(self) -> None:
        self.dropped += 1


class World:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.link = Link()
        self.said: list[str] = []
        self.journal = Journal(directory / "journal.db", ROOM)
        intake = Intake(SETTINGS, RouteTable(SETTINGS), self.journal)
        self.inbox = Inbox(self.journal, intake, cast(MqttLink, self.link), self.make_room)
        monkeypatch.setattr("services.gateway.inbox.time.monotonic", lambda: self.now)
        monkeypatch.setattr(module, "_log", self)

    def make_room(self) -> None:
        self.journal.lines.make_room(ROOM)

    def error(self, text: str) -> None:
        self.said.append(text)

    def info(self, text: str, **_: object) -> None:
        self.said.append(text)

    def arrive(self, first: int, count: int, **changes: object) -> None:
        self.inbox.hold([delivery(number, **changes) for number in range(first, first + count)])
        self.take()

    def take(self, turns: int = 20) -> None:
        for _ in range(turns):
            self.now += 1.0
            self.inbox.take()

    def answer(self, count: int) -> None:
        for row in self.journal.waiting(count):
            self.journal.finish(row.seq, b"{}", State.ANSWERED)
            self.journal.published(row.seq)


def delivery(number: int, **changes: object) -> Delivery:
    payload = b'{"id": %d, "text": "pump hot"}' % number
    fields = {
        "topic": b"plant/1/alarm",
        "qos": 1,
        "retained": False,
        "redelivered": False,
        "packet": number,
        "connection": 1,
    }
    return Delivery(
        payload=payload,
        size=len(payload),
        **{**fields, **changes},  # type: ignore[arg-type]
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_what_is_committed_is_acknowledged(world: World) -> None:
    """In the order of arrival."""
    world.arrive(1, 5)
    assert world.link.acknowledged == [1, 2, 3, 4, 5]
    assert world.journal.counts() == {State.RECEIVED: 5}


def test_a_full_journal_takes_again_as_soon_as_an_alarm_is_through(world: World) -> None:
    """What did not fit is not acknowledged until then; one line when it begins, one when it ends."""
    world.arrive(1, ROOM + 50)
    assert world.link.acknowledged == list(range(1, ROOM + 1))
    world.answer(20)
    world.take()
    assert world.link.acknowledged == list(range(1, ROOM + 21))
    world.answer(40)
    world.take()
    assert world.link.acknowledged == list(range(1, ROOM + 51))
    assert world.link.dropped == 0
    full, again = world.said
    assert "journal_max_alarms = 100" in full
    assert "takes alarms again" in again


def test_alarms_that_are_through_do_not_fill_the_journal(world: World) -> None:
    """They are kept to recognise duplicates and make room when it is needed."""
    for turn in range(5):
        world.arrive(1 + turn * ROOM, ROOM)
        world.answer(ROOM)
    assert world.link.acknowledged == list(range(1, 5 * ROOM + 1))
    assert world.said == []


def said(world: World, packet: int, text: str, **changes: object) -> None:
    """An alarm of one id arrives, twice."""
    message = replace(delivery(packet, **changes), payload=text.encode(), size=len(text))
    world.inbox.hold([message, message])
    world.take()


def test_each_change_of_what_an_id_says_is_an_alarm(world: World) -> None:
    """Critical, information, critical again within the hour; then with a time, and without."""
    critical = '{"id": 7, "text": "pump hot", "severity": "critical"}'
    information = '{"id": 7, "text": "pump hot", "severity": "info"}'
    timed = '{"id": 7, "text": "pump hot", "severity": "info", "ts": 1700000000}'
    for packet, text in enumerate((critical, information, critical, information, timed, information), 1):
        said(world, packet, text)
        assert world.journal.counts() == {State.RECEIVED: packet}
    said(world, 9, information)
    said(world, 10, information.replace("info", "warning"), redelivered=True)
    assert world.journal.counts() == {State.RECEIVED: 7}


def test_ids_and_topics_have_histories_of_their_own(world: World) -> None:
    """What another one says in between makes nothing new."""
    said(world, 1, '{"id": 1, "text": "pump hot"}')
    said(world, 2, '{"id": "1", "text": "pump hot"}')
    said(world, 3, '{"id": 1, "text": "pump cold"}', topic=b"plant/2/alarm")
    assert world.journal.counts() == {State.RECEIVED: 3}
    said(world, 4, '{"text": "pump hot", "id": 1}')
    assert world.journal.counts() == {State.RECEIVED: 3}


def test_what_has_no_place_at_all_is_sent_again_by_the_broker(world: World) -> None:
    """MQTT 3.1.1 without a limit: the surplus is not acknowledged, then the connection is made anew."""
    world.arrive(1, ROOM + HELD + 30)
    assert world.link.dropped == 0
    for _ in range(10):
        world.answer(ROOM)
        world.take()
    assert world.link.acknowledged == list(range(1, HELD + 1))
    assert world.link.dropped == 1
    world.link.connection = 2
    world.inbox.disconnected(1)
    for _ in range(10):
        world.answer(ROOM)
    world.arrive(HELD + 1, ROOM + 30, redelivered=True, connection=2)
    for _ in range(10):
        world.answer(ROOM)
        world.take()
    assert world.link.acknowledged == list(range(1, ROOM + HELD + 31))
    assert world.link.dropped == 1


def test_what_was_held_on_a_lost_connection_comes_again_and_is_one_alarm(world: World) -> None:
    """Its packet id is remembered until the broker has heard of it."""
    world.arrive(1, ROOM)
    world.arrive(501, 3)
    world.inbox.disconnected(1)
    world.link.connection = 2
    world.answer(ROOM)
    world.arrive(501, 3, redelivered=True, connection=2)
    assert len(world.journal.waiting(9)) == 3
    assert world.link.acknowledged[-3:] == [501, 502, 503]


def test_an_alarm_journalled_when_its_connection_was_gone_is_recognised(world: World) -> None:
    """Its acknowledgement reached nobody; it has no id."""
    world.link.connection = 2
    plain = [
        Delivery(b"plant/1/alarm", b"pump hot", 8, 1, False, again, 7, 1 + again) for again in (False, True)
    ]
    for item in plain:
        world.inbox.hold([item])
        world.take(3)
    assert len(world.journal.waiting(9)) == 1
    assert world.link.acknowledged == [7]


def test_a_failing_disk_stops_only_the_taking(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then one alarm at a time is tried, then more."""
    failures = iter([True, True])
    add = world.journal.add

    def failing(*arguments: Any) -> int:
        if next(failures, False):
            raise sqlite3.OperationalError("database or disk is full")
        return add(*arguments)

    monkeypatch.setattr(world.journal, "add", failing)
    world.arrive(1, 40)
    assert world.link.acknowledged == list(range(1, 41))
    assert [text.split(";")[0] for text in world.said] == [
        "the journal cannot be written (database or disk is full)",
        "the journal takes alarms again",
    ]


def test_a_disk_that_is_nearly_full_is_left_to_the_answers(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there can be answered: no alarm is taken into the reserve. The write-ahead log gives way."""
    real = os.statvfs
    free = [journal_file.RESERVE_BYTES // 2]

    def statvfs(path: Any) -> Any:
        found = real(path)
        return type("Disk", (), {"f_bavail": free[0] // 4096, "f_frsize": 4096, "found": found})

    monkeypatch.setattr(os, "statvfs", statvfs)
    world.arrive(1, 5)
    assert world.link.acknowledged == []
    assert "disk" in world.said[0]
    free[0] = 8 * journal_file.RESERVE_BYTES
    world.take()
    assert world.link.acknowledged == [1, 2, 3, 4, 5]
    world.arrive(6, 50)
    assert (tmp_path / "journal.db-wal").stat().st_size > 100_000
    free[0] = journal_file.RESERVE_BYTES + 50_000
    world.arrive(56, 3)
    assert world.link.acknowledged[-1] == 58
    assert len(world.said) == 2
