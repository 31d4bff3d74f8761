"""What makes the gateway lossless: every alarm is here before the broker hears that it arrived.

        add()            submitted()            finish()              published()
    ──▶ received ───────▶ submitted ───────────▶ publishing ─────────▶ answered | failed | dead
            │                                        ▲
            └── finish() (wrong for ever, no alarm) ─┘   `outcome` says which of the three it becomes

After a crash `received` and `submitted` are submitted again under the same request id, `publishing` is
published again. One process owns the file (an exclusive SQLite lock, dropped by the kernel on death); WAL
with synchronous=FULL, so a commit that returned survives a power cut. Rows are bounded: the oldest that are
through (kept to recognise duplicates) make room for new ones; when nothing is through, `add` refuses and the
alarm stays with the broker. What is here goes on: to finish an alarm takes no row, and a reserve of the disk.
"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from services.gateway.dedupe import Arrival, Seen
from services.gateway.journal_file import RESERVE_BYTES, free_bytes, open_database
from services.gateway.journal_lines import LineJournal

_CANDIDATES = 8  # earlier alarms with the same bytes, compared with a new one
_SEEN = "seq, digest, id_key, ts, received, packet, content_key"
_OPEN = "state IN (0, 1, 2) AND outcome IS NOT ?"  # not through, and no dead letter
_PRUNE = 64  # rows given up at once


class State(IntEnum):
    RECEIVED = 0
    SUBMITTED = 1
    PUBLISHING = 2
    ANSWERED = 3
    FAILED = 4
    DEAD = 5


class JournalFull(Exception):
    """Nothing more can be taken now: every row is an alarm that is not through yet, or its disk is full."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message to be journalled. `out_topic` is where its answer goes, `out_payload` the answer if known."""

    arrival: Arrival
    topic: str
    payload: bytes
    severity: int
    profile: str
    out_topic: str
    out_payload: bytes | None = None
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An alarm without an answer. `request_id` names this attempt."""

    seq: int
    request_id: str
    severity: int
    attempts: int
    received: float
    topic: str
    payload: bytes
    profile: str
    out_topic: str
    stream: str


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be published until the broker has acknowledged it."""

    seq: int
    topic: str
    payload: bytes
    outcome: State


class Journal:
    """All methods belong to one thread. Changes are durable when the outermost `batch()` ends.

    `lines` are the log lines of streams, in the same file and the same transactions.
    """

    def __init__(self, path: Path, max_alarms: int) -> None:
        self._max = max_alarms
        self._path = path
        self._db = open_database(path)
        self._depth = 0
        self.lines = LineJournal(self._db, self.batch)
        (self._rows,) = self._db.execute("SELECT count(*) FROM alarms").fetchone()

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction around what happens inside; all of it or nothing."""
        if self._depth:
            yield
            return
        rows = self._rows
        self._db.execute("BEGIN IMMEDIATE")
        self._depth = 1
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._rows = rows
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        finally:
            self._depth = 0

    def check_disk(self, size: int) -> None:
        """JournalFull unless `size` bytes can be taken and the answers of all alarms be written as well."""
        needed = 2 * size + RESERVE_BYTES
        if self._space() < needed:
            self.relieve()
            if self._space() < needed:
                raise JournalFull(f"the disk of {self._path} is full")

    def _space(self) -> int:
        """Bytes on the disk and in pages of the database that hold nothing any more."""
        (pages,) = self._db.execute("PRAGMA freelist_count").fetchone()
        (size,) = self._db.execute("PRAGMA page_size").fetchone()
        return free_bytes(self._path) + int(pages * size)

    def relieve(self) -> None:
        """Bring the write-ahead log into the database and give back its space, as far as that goes."""
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def seen(self, arrival: Arrival) -> list[Seen]:
        """The latest alarms with these bytes and the latest with this id, newest first."""
        rows = self._db.execute(
            f"SELECT * FROM (SELECT {_SEEN} FROM alarms WHERE digest = ? ORDER BY seq DESC LIMIT ?) UNION"
            f" SELECT * FROM (SELECT {_SEEN} FROM alarms WHERE id_key = ? ORDER BY seq DESC LIMIT 1)"
            " ORDER BY 1 DESC",
            (arrival.digest, _CANDIDATES, arrival.id_key),
        )
        return [Seen(*row) for row in rows]

    def add(self, entry: Entry, outcome: State | None = None) -> int:
        """Take a message in; with `outcome` it only waits to be published. JournalFull: no room."""
        with self.batch():
            self._make_room()
            state = State.RECEIVED if outcome is None else State.PUBLISHING
            arrival = entry.arrival
            cursor = self._db.execute(
                "INSERT INTO alarms (request_id, state, outcome, severity, received, ts, packet, digest,"
                " id_key, content_key, topic, payload, out_topic, profile, out_payload, stream)"
                " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    *(uuid.uuid4().hex, state, outcome, entry.severity, arrival.received, arrival.ts),
                    *(arrival.packet, arrival.digest, arrival.id_key, arrival.content_key, entry.topic),
                    *(entry.payload if outcome is None else None, entry.out_topic, entry.profile),
                    *(entry.out_payload, entry.stream),
                ),
            )
            self._rows += 1
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def acknowledged(self, seqs: list[int]) -> None:
        """The broker was told: what comes with the same packet id from now on is something new."""
        with self.batch():
            self._db.executemany("UPDATE alarms SET packet = NULL WHERE seq = ?", ((seq,) for seq in seqs))

    def waiting(self, limit: int, skip: set[int] | frozenset[int] = frozenset()) -> list[Waiting]:
        """Alarms without an answer that are not in `skip`: the most severe first, then the oldest."""
        rows = self._db.execute(
            "SELECT seq, request_id, severity, attempts, received, topic, payload, profile, out_topic,"
            " stream FROM alarms WHERE state IN (0, 1) ORDER BY severity DESC, seq LIMIT ?",
            (limit + len(skip),),
        )
        found = [Waiting(seq, f"{stem}.{tries}", severity, tries, *rest)
                 for seq, stem, severity, tries, *rest in rows if seq not in skip]  # fmt: skip
        return found[:limit]

    def submitted(self, seq: int) -> None:
        self._change(
            "UPDATE alarms SET state = ? WHERE seq = ? AND state = ?", State.SUBMITTED, seq, State.RECEIVED
        )

    def try_again(self, seq: int) -> None:
        """The attempt failed: the next one has another request id."""
        self._change(
            "UPDATE alarms SET state = ?, attempts = attempts + 1 WHERE seq = ? AND state IN (0, 1)",
            State.RECEIVED,
            seq,
        )

    def finish(self, seq: int, payload: bytes, outcome: State) -> None:
        """`payload` is to be published to the alarm's answer topic; then the alarm is `outcome`."""
        self._change(
            "UPDATE alarms SET state = ?, out_payload = ?, outcome = ?, payload = NULL"
            " WHERE seq = ? AND state IN (0, 1)",
            *(State.PUBLISHING, payload, outcome, seq),
        )

    def replace_outgoing(self, message: Outgoing) -> None:
        """Publish this instead of what the broker does not take."""
        self._change(
            "UPDATE alarms SET out_topic = ?, out_payload = ?, outcome = ? WHERE seq = ? AND state = ?",
            *(message.topic, message.payload, message.outcome, message.seq, State.PUBLISHING),
        )

    def outgoing(self, limit: int, skip: set[int] | frozenset[int] = frozenset()) -> list[Outgoing]:
        """What is to be published and not in `skip`: the most severe first, then the oldest."""
        rows = self._db.execute(
            "SELECT seq, out_topic, out_payload, outcome FROM alarms"
            f" WHERE state = ? AND seq NOT IN ({','.join('?' * len(skip))})"
            " ORDER BY severity DESC, seq LIMIT ?",
            (State.PUBLISHING, *skip, limit),
        )
        return [Outgoing(seq, topic, payload, State(outcome)) for seq, topic, payload, outcome in rows]

    def published(self, seq: int) -> None:
        """The broker has it. The texts are dropped; what recognises a duplicate stays."""
        self._change(
            "UPDATE alarms SET state = outcome, payload = NULL, out_payload = NULL"
            " WHERE seq = ? AND state = ?",
            *(seq, State.PUBLISHING),
        )

    def give_up(self, seq: int) -> None:
        """It cannot be published anywhere. Its text stays, for people, as long as there is room."""
        self._change("UPDATE alarms SET state = outcome WHERE seq = ? AND state = ?", seq, State.PUBLISHING)

    def addresses(self) -> list[tuple[str, str, str, str]]:
        """Topic, profile, answer topic and stream of the alarms that are not through."""
        rows = self._db.execute(
            f"SELECT DISTINCT topic, profile, out_topic, stream FROM alarms WHERE {_OPEN}", (State.DEAD,)
        )
        return list(rows)

    def redirect(self, topic: str, profile: str, out_topic: str, stream: str) -> None:
        """Answer what came on `topic` with `profile`, on `stream`, to `out_topic`."""
        self._change(
            f"UPDATE alarms SET profile = ?, out_topic = ?, stream = ? WHERE {_OPEN} AND topic = ?",
            *(profile, out_topic, stream, State.DEAD, topic),
        )

    def redirect_dead_letters(self, out_topic: str) -> None:
        self._change(
            "UPDATE alarms SET out_topic = ? WHERE state = ? AND outcome = ?",
            *(out_topic, State.PUBLISHING, State.DEAD),
        )

    def subscriptions(self) -> set[str]:
        """The filters the broker's session was given last."""
        return {topic for (topic,) in self._db.execute("SELECT filter FROM subscriptions")}

    def subscribed(self, filters: list[str]) -> None:
        """The broker's session has these filters now, and no others."""
        with self.batch():
            self._db.execute("DELETE FROM subscriptions")
            self._db.executemany("INSERT INTO subscriptions VALUES (?)", ((item,) for item in filters))

    def counts(self) -> dict[State, int]:
        """How many alarms are in each state."""
        rows = self._db.execute("SELECT state, count(*) FROM alarms GROUP BY state")
        return {State(state): count for state, count in rows}

    def _change(self, statement: str, *values: object) -> None:
        with self.batch():
            self._db.execute(statement, values)

    def _make_room(self) -> None:
        if self._rows < self._max:
            return
        cursor = self._db.execute(
            "DELETE FROM alarms WHERE seq IN (SELECT seq FROM alarms WHERE state >= ? ORDER BY seq LIMIT ?)",
            (State.ANSWERED, max(_PRUNE, self._rows - self._max + 1)),
        )
        self._rows -= cursor.rowcount
        if self._rows >= self._max:
            raise JournalFull(
                f"the journal is full of unanswered alarms (gateway.journal_max_alarms = {self._max})"
            )
