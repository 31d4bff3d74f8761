"""Log lines in the journal and on their way to context: none is lost, none comes twice, none overtakes."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.gateway.appends import IN_FLIGHT
from services.gateway.intake import Intake, reroute
from services.gateway.journal import Journal, State
from services.gateway.routes import RouteTable
from shared.bus.messages.requests import StreamAppend, StreamAppended, StreamClose, StreamRefused
from shared.config.settings import Route
from tests.unit.gateway_lines_world import FakeContext, configured, delivery, made_appends, put


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db", 100)


@pytest.fixture
def intake(journal: Journal) -> Intake:
    return Intake(configured(), RouteTable(configured()), journal)


def texts(journal: Journal, stream: str = "a") -> list[str]:
    return [line.text for line in journal.lines.unbundled(stream, 999)]


def test_a_line_is_recognised_when_the_broker_or_a_sender_with_ids_repeats_it(
    intake: Intake, journal: Journal
) -> None:
    """A redelivery, a retained one, the same bytes with an id; what a machine says twice are two lines."""
    intake.take(delivery(b"on", packet=7))
    intake.take(delivery(b"on", packet=7, redelivered=True))
    intake.take(delivery(b"on", packet=8, retained=True))
    assert texts(journal) == ["on\n"]
    intake.take(delivery(b"on", packet=8))
    for _ in range(2):
        intake.take(delivery(b'{"id": 1, "text": "off"}'))
    intake.take(delivery(b'{"id": 1, "text": "on"}'))
    assert texts(journal) == ["on\n", "on\n", "off\n", "on\n"]
    assert journal.counts() == {}


def test_a_redelivery_is_found_among_many_equal_lines(intake: Intake, journal: Journal) -> None:
    """A whole burst comes again when the connection breaks before its acknowledgements arrive."""
    for again in (False, True):
        for packet in range(1, 61):
            intake.take(delivery(b"pump on", packet=packet, redelivered=again))
    assert journal.lines.waiting() == 60


def test_a_redelivery_is_known_also_when_the_line_was_read_meanwhile(
    intake: Intake, journal: Journal
) -> None:
    """Killed between commit and acknowledgement, and context was faster than the broker."""
    intake.take(delivery(b"on", packet=7))
    context = FakeContext()
    appends = made_appends(journal, context)
    appends.fill()
    appends.handle(context.take(context.sent[0]))  # type: ignore[arg-type]
    appends.fill()
    assert journal.lines.waiting() == 0
    intake.take(delivery(b"on", packet=7, redelivered=True))
    assert journal.lines.waiting() == 0


def test_a_broken_line_holds_up_nobody_when_the_journal_is_full(intake: Intake, journal: Journal) -> None:
    """Its dead letter would need an alarm's room."""
    for number in range(100):
        assert intake.take(delivery(b"", f"nowhere/{number}".encode())) is not None
    assert intake.take(delivery(b"")) is None


def test_one_append_of_a_stream_is_under_way_and_the_next_takes_what_came_meanwhile(
    journal: Journal,
) -> None:
    """At most so many tokens; streams do not wait for each other, and no more than eight are under way."""
    context = FakeContext()
    appends = made_appends(journal, context)
    first = put(journal, "one")
    appends.fill()
    put(journal, "two", "x" * 15, "y" * 15)
    appends.fill()
    assert [message.serial for message in context.sent] == first  # type: ignore[attr-defined]
    appends.handle(context.take(context.sent[0]))  # type: ignore[arg-type]
    appends.fill()
    assert "".join(map(chr, context.sent[1].tokens)) == f"two\n{'x' * 15}\n"  # type: ignore[attr-defined]
    for number in range(20):
        put(journal, "z", stream=f"s{number}")
    appends.fill()
    assert len(context.sent) - 1 == IN_FLIGHT


def test_a_bundle_stays_what_it_was_after_a_restart(journal: Journal) -> None:
    """Context would otherwise get its lines twice: it knows the serial, not the lines."""
    context = FakeContext()
    put(journal, "one", "two")
    made_appends(journal, context).fill()
    put(journal, "three")
    again = made_appends(journal, context)
    again.fill()
    assert context.sent[0] == context.sent[1]


def test_answers_about_an_earlier_append_change_nothing(journal: Journal) -> None:
    """They were under way when the append was sent again: they are not about this one."""
    context = FakeContext()
    appends = made_appends(journal, context)
    (first,) = put(journal, "one")
    appends.fill()
    appends.handle(StreamAppended(stream="a", serial=first))
    put(journal, "two")
    appends.fill()
    appends.handle(StreamAppended(stream="a", serial=first))
    appends.handle(StreamRefused(stream="a", serial=first, reason="late", retry_after_s=None))
    put(journal, "three")
    appends.fill()
    assert len(context.sent) == 2
    assert journal.lines.waiting() == 2
    assert journal.outgoing(9) == []


def test_lines_that_find_no_place_are_few_lines_in_the_log(journal: Journal) -> None:
    """However many assets send theirs again, for as long as the plant runs."""
    context = FakeContext()
    appends = made_appends(journal, context)
    serials = {name: put(journal, "one", stream=name)[0] for name in "abcdef"}
    appends.fill()
    with capture_logs() as lines:
        for name, serial in serials.items():
            appends.handle(StreamRefused(stream=name, serial=serial, reason="full", retry_after_s=9.0))
    assert [line["event"] for line in lines].count("log lines are refused, sending them later") == 1


def test_a_refusal_for_ever_takes_the_append_apart(journal: Journal) -> None:
    """Each line alone; the one that is refused alone becomes a dead letter with the reason."""
    context = FakeContext()
    appends = made_appends(journal, context)
    put(journal, "one", "two", "three")
    appends.fill()
    for _ in range(4):
        message = context.sent[-1]
        assert isinstance(message, StreamAppend)
        if "w" in map(chr, message.tokens):
            appends.handle(StreamRefused(stream="a", serial=message.serial, reason="why", retry_after_s=None))
        else:
            appends.handle(context.take(message))
        appends.fill()
    assert context.texts["a"] == "one\nthree\n"
    (letter,) = journal.outgoing(9)
    assert (letter.topic, letter.outcome) == ("dead", State.DEAD)
    assert b'"why"' in letter.payload
    assert appends.counts.refused == 1


def test_what_is_too_much_goes_from_the_stream_that_has_most(journal: Journal) -> None:
    """What was read first, then the oldest that wait; never what is under way."""
    context = FakeContext()
    appends = made_appends(journal, context)
    put(journal, "read", stream="r")
    appends.fill()
    appends.handle(context.take(context.sent[0]))  # type: ignore[arg-type]
    put(journal, "first")
    appends.fill()
    put(journal, *(f"n{number}" for number in range(150)))
    put(journal, "quiet", stream="q")
    with journal.batch():
        appends.make_room()
    assert appends.counts.dropped == 52
    assert texts(journal)[0] == "n52\n"
    assert texts(journal, "q") == ["quiet\n"]
    assert [line.text for line in journal.lines.bundled("a")] == ["first\n"]


def test_another_configuration_moves_and_drops_lines_and_closes_streams(journal: Journal) -> None:
    """Moved lines get new serials, as the new stream may be further. A lost stream is closed at a join."""
    context = FakeContext()
    put(journal, "one", "two")
    put(journal, "gone", stream="b")
    made_appends(journal, context).fill()
    config = configured(Route(topic="log/a", profile="q", stream="new"))
    reroute(journal, RouteTable(config), "dead")
    assert journal.lines.addresses() == [("log/a", "new", "q")]
    assert texts(journal, "new") == ["one\n", "two\n"]
    context.sent.clear()
    made_appends(journal, context, config).fill()
    assert sorted(m.stream for m in context.sent if isinstance(m, StreamClose)) == ["a", "b"]
    assert [m.stream for m in context.sent if isinstance(m, StreamAppend)] == ["new"]


def test_a_new_journal_goes_on_above_the_serials_of_a_lost_one(tmp_path: Path) -> None:
    """Context would take its lines for old ones."""
    first = put(Journal(tmp_path / "one.db", 100), "x")
    time.sleep(0.01)
    assert put(Journal(tmp_path / "two.db", 100), "x")[0] > first[0]


_TO_LAYOUT_2 = (
    "DROP INDEX by_id; ALTER TABLE alarms DROP COLUMN id_key;"
    "ALTER TABLE alarms RENAME COLUMN content_key TO id_key;"
    "CREATE INDEX by_id ON alarms (id_key, seq) WHERE id_key IS NOT NULL; PRAGMA user_version = 2;"
)
_TO_LAYOUT_1 = (
    f"{_TO_LAYOUT_2} ALTER TABLE alarms DROP COLUMN stream; DROP TABLE lines; DROP TABLE streams;"
    "PRAGMA user_version = 1;"
)


@pytest.mark.parametrize("back", [_TO_LAYOUT_1, _TO_LAYOUT_2])
def test_a_journal_of_an_earlier_layout_keeps_its_alarms(tmp_path: Path, back: str) -> None:
    """It gets the columns and tables that it lacks."""
    path = tmp_path / "journal.db"
    journal = Journal(path, 100)
    intake = Intake(
        configured(), RouteTable(configured(Route(topic="log/a", profile="p", answer="out"))), journal
    )
    intake.take(delivery(b"pump stopped"))
    journal.close()
    with sqlite3.connect(path) as db:
        db.executescript(back)
    db.close()
    again = Journal(path, 100)
    assert [(row.payload, row.stream) for row in again.waiting(9)] == [(b"pump stopped", "")]
    put(again, "line")
    assert not list(tmp_path.glob("*damaged*"))
