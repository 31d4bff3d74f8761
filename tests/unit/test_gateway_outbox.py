"""No answer holds up another: refused, too large, or one that the broker hangs up on."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.gateway.dedupe import Arrival
from services.gateway.events import Confirmed
from services.gateway.journal import Entry, Journal, State
from services.gateway.outbox import IN_FLIGHT, Outbox
from services.gateway.refusals import MOST, Refusals

ANSWER = json.dumps({"id": "a", "text": "check the pump " * 40}).encode()


class Broker:
    """Takes everything, but refuses what `refuses` says and hangs up on what `hates` says."""

    def __init__(self, journal: Journal) -> None:
        self.now = 1000.0
        self.confirmed: queue.SimpleQueue[Confirmed] = queue.SimpleQueue()
        self.delivered: list[tuple[str, bytes]] = []
        self.refuses: Callable[[str, bytes], bool] = lambda _topic, _payload: False
        self.hates: Callable[[str, bytes], bool] = self.refuses
        self.silent: Callable[[str, bytes], bool] = self.refuses
        self.connection = 0
        self.hung_up = 0
        self.alive = False
        self.outbox = Outbox(journal, self, "dead", lambda: self.now)  # type: ignore[arg-type]

    def publish(self, connection: int, ticket: int, topic: str, payload: bytes) -> bool:
        if connection != self.connection or not self.alive:
            return False
        if self.hates(topic, payload):
            self.alive = False
        elif self.refuses(topic, payload):
            self.confirmed.put(Confirmed(ticket, "Not authorized"))
        elif not self.silent(topic, payload):
            self.delivered.append((topic, payload))
            self.confirmed.put(Confirmed(ticket, None))
        return True

    def connect(self, max_packet: int | None = None) -> None:
        self.connection += 1
        self.alive = True
        self.outbox.connected(self.connection, max_packet)

    def run(self, seconds: float) -> None:
        """The gateway's loop, ten turns a second, a second for a new connection."""
        end = self.now + seconds
        while self.now < end:
            if not self.alive:
                self.hung_up += 1
                self.outbox.disconnected(self.connection)
                self.now += 1.0
                self.connect()
            self.outbox.pump()
            self.now += 0.1

    def topics(self) -> list[str]:
        return [topic for topic, _ in self.delivered]

    def letters(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for topic, payload in self.delivered if topic == "dead"]


class Answers:
    """Journal entries that wait to be published."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.count = 0

    def __call__(self, topic: str, count: int = 1, severity: int = 1) -> None:
        for _ in range(count):
            self.count += 1
            arrival = Arrival(self.count.to_bytes(16, "big"), None, None, 0.0)
            seq = self.journal.add(Entry(arrival, "t", b"alarm", severity, "p", topic))
            self.journal.finish(seq, ANSWER, State.ANSWERED)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db", 1000)


@pytest.fixture
def answers(journal: Journal) -> Answers:
    return Answers(journal)


@pytest.fixture
def broker(journal: Journal) -> Broker:
    broker = Broker(journal)
    broker.connect()
    return broker


def test_everything_is_published_once_the_most_severe_first(broker: Broker, answers: Answers) -> None:
    """Many more than fly at once."""
    answers("out/1", 50)
    answers("out/critical", severity=3)
    broker.run(3)
    assert broker.topics() == ["out/critical", *["out/1"] * 50]
    assert answers.journal.counts() == {State.ANSWERED: 51}


def test_refused_answers_do_not_hold_up_others(broker: Broker, answers: Answers) -> None:
    """Eighty are refused, all more severe than the one that is not."""
    broker.refuses = lambda topic, _payload: topic == "out/denied"
    answers("out/denied", 80, severity=3)
    answers("out/1")
    broker.run(2)
    assert broker.topics() == ["out/1"]


def test_a_refused_answer_is_tried_for_a_while_and_then_a_dead_letter(
    broker: Broker, answers: Answers
) -> None:
    """The letter has the reason, the topic and the whole answer."""
    broker.refuses = lambda topic, _payload: topic == "out/denied"
    answers("out/denied")
    broker.run(15)
    assert broker.delivered == []
    broker.run(15)
    letter = broker.letters()[0]
    assert "Not authorized" in letter["reason"]
    assert letter["topic"] == "out/denied"
    assert letter["payload"].encode() == ANSWER
    assert answers.journal.counts() == {State.DEAD: 1}


def test_a_refusal_that_ends_in_time_leaves_the_answer_as_it_is(broker: Broker, answers: Answers) -> None:
    """Somebody mends the access rules."""
    broker.refuses = lambda topic, _payload: topic == "out/denied"
    answers("out/denied", 3)
    broker.run(3)
    broker.refuses = lambda _topic, _payload: False
    broker.run(30)
    assert broker.topics() == ["out/denied"] * 3


def test_a_dead_letter_that_is_refused_too_stays_in_the_journal(broker: Broker, answers: Answers) -> None:
    """It is closed, with its text, and said; nothing is tried for ever."""
    broker.refuses = lambda topic, _payload: topic in ("out/denied", "dead")
    answers("out/denied")
    broker.run(60)
    assert answers.journal.counts() == {State.DEAD: 1}
    (kept,) = answers.journal._db.execute("SELECT out_payload FROM alarms").fetchone()
    assert "check the pump" in json.loads(kept)["payload"]


def test_an_answer_on_which_the_broker_hangs_up_does_not_hold_up_others(
    broker: Broker, answers: Answers
) -> None:
    """Those under way with it are sent alone and arrive whole; new ones go on all the time."""
    broker.hates = lambda topic, _payload: topic == "out/poison"
    answers("out/poison", severity=3)
    answers("out/1", IN_FLIGHT)
    broker.run(5)
    assert broker.topics() == ["out/1"] * IN_FLIGHT
    for _ in range(40):
        answers("out/new")
        broker.run(1)
    assert broker.topics().count("out/new") >= 39
    assert all(payload == ANSWER for topic, payload in broker.delivered if topic != "dead")
    assert "hung up" in broker.letters()[0]["reason"]
    assert broker.hung_up <= 7
    broker.run(60)
    assert broker.hung_up <= 7


def test_many_poisoned_answers_cost_one_connection_in_a_while(broker: Broker, answers: Answers) -> None:
    """Others are published in between."""
    broker.hates = lambda topic, _payload: topic == "out/poison"
    answers("out/poison", 5)
    for _ in range(60):
        answers("out/new")
        broker.run(1)
    assert broker.topics().count("out/new") >= 55
    broker.run(600)
    assert len(broker.letters()) == 5


def test_an_answer_that_is_too_large_for_a_broker_that_hangs_up_becomes_an_error(
    broker: Broker, answers: Answers
) -> None:
    """MQTT 3.1.1 does not tell the limit."""
    broker.hates = lambda _topic, payload: len(payload) > 500
    answers("out/1")
    broker.run(60)
    ((topic, payload),) = broker.delivered
    assert topic == "out/1"
    assert json.loads(payload)["id"] == "a"
    assert "hung up" in json.loads(payload)["error"]


@pytest.mark.parametrize("limit", [500, 60])
def test_an_answer_that_is_larger_than_the_broker_says_becomes_an_error(
    journal: Journal, answers: Answers, limit: int
) -> None:
    """With a limit so small that not even a dead letter fits, it is closed."""
    broker = Broker(journal)
    broker.connect(max_packet=limit)
    answers("out/1")
    broker.run(1)
    if limit == 500:
        assert "larger" in json.loads(broker.delivered[0][1])["error"]
    else:
        assert journal.counts() == {State.DEAD: 1}
    assert broker.hung_up == 0


def test_a_broker_that_hates_dead_letters_is_not_asked_for_ever(broker: Broker, answers: Answers) -> None:
    """Answer, error, dead letter, dead letter without payload: then it is over."""
    broker.hates = lambda topic, _payload: topic in ("out/poison", "dead")
    answers("out/poison")
    broker.run(200)
    assert answers.journal.counts() == {State.DEAD: 1}
    assert broker.hung_up <= 12


def test_a_suspect_that_is_never_acknowledged_holds_up_nothing(broker: Broker, answers: Answers) -> None:
    """The broker stays connected and is silent about one message."""
    broker.hates = lambda topic, _payload: topic == "out/odd"
    answers("out/odd")
    broker.run(1)
    broker.hates = lambda topic, _payload: False
    broker.silent = lambda topic, _payload: topic == "out/odd"
    broker.run(2)
    answers("out/1", 3)
    broker.run(10)
    assert broker.topics() == ["out/1"] * 3


def test_refusals_are_bounded() -> None:
    """What comes when too many wait is given up at once."""
    refusals = Refusals()
    assert all(refusals.refused(seq, "t", 0.0) for seq in range(MOST))
    assert not refusals.refused(MOST, "t", 0.0)
    assert refusals.waiting(0.5) == set(range(MOST))
    assert refusals.waiting(1.5) == set()
    assert [refusals.refused(0, "t", 2.0), refusals.refused(0, "t", 9.0)] == [True, True]
    assert not refusals.refused(0, "t", 99.0)
    assert refusals.refused(MOST, "t", 99.0)
