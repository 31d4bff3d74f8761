"""The journal: what was committed is there, whatever killed the process; nothing grows without a bound."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.gateway import journal_file
from services.gateway.dedupe import Arrival
from services.gateway.journal import Entry, Journal, JournalFull, State
from shared.config.errors import RinglineError

ROOT = Path(__file__).resolve().parents[2]


def entry(number: int = 0, severity: int = 1, packet: int | None = None) -> Entry:
    arrival = Arrival(number.to_bytes(16, "big"), None, None, 1000.0 + number, packet=packet)
    return Entry(arrival, "plant/1/alarm", f"alarm {number}".encode(), severity, "p", "out/1")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db", 100)


def test_an_alarm_goes_through_its_states(journal: Journal) -> None:
    """Received, submitted, publishing, answered; its texts are gone afterwards, its fingerprint stays."""
    seq = journal.add(entry())
    journal.submitted(seq)
    assert [row.seq for row in journal.waiting(9)] == [seq]
    journal.finish(seq, b"the answer", State.ANSWERED)
    assert journal.waiting(9) == []
    assert [(out.seq, out.payload, out.topic) for out in journal.outgoing(9)] == [
        (seq, b"the answer", "out/1")
    ]
    journal.published(seq)
    assert journal.outgoing(9) == []
    assert journal.counts() == {State.ANSWERED: 1}
    assert journal.seen(entry().arrival)[0].seq == seq


def test_waiting_is_by_severity_then_age_and_skips_what_is_in_flight(journal: Journal) -> None:
    """Critical alarms overtake."""
    seqs = [journal.add(entry(number, severity)) for number, severity in enumerate([0, 3, 1, 3])]
    assert [row.seq for row in journal.waiting(9)] == [seqs[1], seqs[3], seqs[2], seqs[0]]
    assert [row.seq for row in journal.waiting(2, {seqs[1]})] == [seqs[3], seqs[2]]


def test_another_attempt_has_another_request_id_and_a_restart_the_same(
    journal: Journal, tmp_path: Path
) -> None:
    """Context replays the request it knows; a failed one must not be replayed."""
    seq = journal.add(entry())
    first = journal.waiting(1)[0].request_id
    journal.close()
    again = Journal(tmp_path / "journal.db", 100)
    assert again.waiting(1)[0].request_id == first
    again.try_again(seq)
    assert again.waiting(1)[0].request_id != first


def test_packet_ids_are_forgotten_when_acknowledged(journal: Journal) -> None:
    """So that the same text under a reused id is a new alarm."""
    seq = journal.add(entry(packet=9))
    assert journal.seen(entry().arrival)[0].packet == 9
    journal.acknowledged([seq])
    assert journal.seen(entry().arrival)[0].packet is None


def test_a_full_journal_gives_up_the_oldest_that_are_through_and_then_refuses(journal: Journal) -> None:
    """Never an alarm that is unanswered."""
    for number in range(100):
        journal.add(entry(number))
    with pytest.raises(JournalFull):
        journal.add(entry(100))
    for row in journal.waiting(3):
        journal.finish(row.seq, b"x", State.ANSWERED)
        journal.published(row.seq)
    for number in range(101, 104):
        journal.add(entry(number))
    assert journal.counts() == {State.RECEIVED: 100}


def test_a_batch_is_all_or_nothing(journal: Journal) -> None:
    """An exception in the middle leaves no trace, also not in the count of rows."""

    def failing_batch() -> None:
        with journal.batch():
            journal.add(entry(1))
            raise ValueError

    for _ in range(150):
        with pytest.raises(ValueError, match=r"^$"):
            failing_batch()
    assert journal.counts() == {}
    journal.add(entry(2))


def test_its_files_are_private(journal: Journal, tmp_path: Path) -> None:
    """0600: alarms say how a plant works."""
    journal.add(entry())
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_second_owner_is_told_so(journal: Journal, tmp_path: Path) -> None:
    """Two gateways on one journal would answer twice."""
    journal.add(entry())
    code = (
        "from pathlib import Path; from services.gateway.journal import Journal\n"
        "from shared.config.errors import RinglineError\n"
        f"try: Journal(Path({str(tmp_path / 'journal.db')!r}), 100)\n"
        "except RinglineError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "another gateway uses it" in found.stdout


def test_a_damaged_file_is_kept_and_a_new_one_begun(tmp_path: Path) -> None:
    """The gateway goes on; people can look for what was in it."""
    path = tmp_path / "journal.db"
    path.write_bytes(b"this is no database" * 100)
    journal = Journal(path, 100)
    journal.add(entry())
    assert [file.read_bytes()[:4] for file in tmp_path.glob("*damaged*")] == [b"this"]


def test_a_journal_of_another_layout_is_set_aside(tmp_path: Path) -> None:
    """A newer version wrote it."""
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    Journal(path, 100).add(entry())
    assert list(tmp_path.glob("*damaged*"))


def test_a_directory_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """It says what to set."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RinglineError, match=r"set paths\.data"):
        Journal(tmp_path / "file" / "journal.db", 100)


def test_a_journal_on_a_full_disk_opens_without_writing(journal: Journal, tmp_path: Path) -> None:
    """A new one cannot be made there: then the gateway waits for room."""
    seq = journal.add(entry())
    journal.relieve()
    journal.close()
    wal = tmp_path / "journal.db-wal"
    again = Journal(tmp_path / "journal.db", 100)
    assert not wal.exists() or wal.stat().st_size == 0
    assert [row.seq for row in again.waiting(9)] == [seq]


def test_a_journal_that_cannot_be_made_for_want_of_room_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is to be changed in the configuration, so it is no RinglineError."""

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(journal_file, "_connect", full)
    with pytest.raises(journal_file.DiskFull):
        Journal(tmp_path / "journal.db", 100)


_WRITER = """
import sys
from pathlib import Path
from services.gateway.dedupe import Arrival
from services.gateway.journal import Entry, Journal, State
journal = Journal(Path(sys.argv[1]), 10_000)
number = int(sys.argv[2])
while True:
    number += 1
    arrival = Arrival(number.to_bytes(16, "big"), None, None, 0.0)
    seq = journal.add(Entry(arrival, "t", str(number).encode(), 1, "p", "out"))
    print("added", number, flush=True)
    if number % 2:
        with journal.batch():
            journal.submitted(seq)
            journal.finish(seq, str(number).encode(), State.ANSWERED)
        print("finished", number, flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011, 0.05, 0.2])
def test_what_was_committed_survives_kill_9(tmp_path: Path, delay: float) -> None:
    """A writer is killed at any moment, three times over: everything it had reported is in the journal."""
    path = tmp_path / "journal.db"
    reported: Counter[str] = Counter()
    last = 0
    for _ in range(3):
        command = [sys.executable, "-c", _WRITER, str(path), str(last)]
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        lines = [writer.stdout.readline()]
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.readlines()
        writer.wait()
        complete = [line.split() for line in lines if line.endswith("\n")]
        reported.update(kind for kind, _ in complete)
        last = max(int(number) for _, number in complete) + 10
    journal = Journal(path, 10_000)
    outgoing = journal.outgoing(10_000)
    waiting = journal.waiting(10_000)
    assert len(outgoing) >= reported["finished"]
    assert len(outgoing) + len(waiting) >= reported["added"]
    assert all(out.payload and out.outcome is State.ANSWERED for out in outgoing)
    assert all(row.payload for row in waiting)


class JournalMachine(RuleBasedStateMachine):
    """Any order of changes and reopenings against a dictionary."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "journal.db"
        self.journal = Journal(self.path, 100)
        self.model: dict[int, State] = {}
        self.number = 0

    @rule(severity=st.integers(0, 3))
    def add(self, severity: int) -> None:
        self.number += 1
        if len(self.model) < 90:
            self.model[self.journal.add(entry(self.number, severity))] = State.RECEIVED

    @rule(data=st.data(), change=st.sampled_from(["submitted", "try_again", "finish", "published"]))
    def change(self, data: st.DataObject, change: str) -> None:
        if not self.model:
            return
        seq = data.draw(st.sampled_from(sorted(self.model)))
        state = self.model[seq]
        unanswered = state in (State.RECEIVED, State.SUBMITTED)
        match change:
            case "submitted":
                self.journal.submitted(seq)
                self.model[seq] = State.SUBMITTED if unanswered else state
            case "try_again":
                self.journal.try_again(seq)
                self.model[seq] = State.RECEIVED if unanswered else state
            case "finish":
                self.journal.finish(seq, b"x", State.FAILED)
                self.model[seq] = State.PUBLISHING if unanswered else state
            case _:
                self.journal.published(seq)
                self.model[seq] = State.FAILED if state is State.PUBLISHING else state

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = Journal(self.path, 100)

    @invariant()
    def agrees(self) -> None:
        assert self.journal.counts() == Counter(self.model.values())
        unanswered = {seq for seq, state in self.model.items() if state <= State.SUBMITTED}
        assert {row.seq for row in self.journal.waiting(1000)} == unanswered

    def teardown(self) -> None:
        self.journal.close()
        self.directory.cleanup()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=25, stateful_step_count=25)
