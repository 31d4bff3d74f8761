"""The journal's log lines: from the broker to an asset's stream, each once and in order.

        add()          bundle()            read()
    ──▶ waiting ───────▶ in an append ─────▶ read: only what recognises it when it arrives again
           │               ▲      │
           │               └──────┘ again after a refusal, a restart, a loss of context: the same lines under
           ▼                        the same serial, or context could not tell what it has already
        dropped by make_room()

A line's `seq` grows; the `serial` of an append is that of its last line. Rows are bounded: what was read goes
first, then the oldest waiting lines of the stream that has most of them. A log line is context and may go; it
never takes an alarm's room.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from services.gateway.dedupe import Arrival, Seen

_PRUNE = 64  # waiting lines dropped at once
_STREAMS = 1000  # whose names are kept
_WAITING = "text IS NOT NULL AND append IS NULL"


@dataclass(frozen=True, slots=True)
class Line:
    """`seq` is 0 until it is in the journal. `text` ends with a line break."""

    topic: str
    stream: str
    profile: str
    text: str
    seq: int = 0


class LineJournal:
    """Belongs to a Journal, whose `batch` makes changes durable."""

    def __init__(self, db: sqlite3.Connection, batch: Callable[[], AbstractContextManager[None]]) -> None:
        self._db = db
        self._batch = batch

    def seen(self, arrival: Arrival) -> list[Seen]:
        """The latest line with the same bytes on the same topic, and the one with the same packet id.

        A machine may have said the same thing a hundred times: of those the redelivered one is wanted.
        """
        rows = self._db.execute(
            "SELECT * FROM (SELECT seq, digest, NULL, NULL, received, packet FROM lines"
            " WHERE digest = ?1 ORDER BY seq DESC LIMIT 1) UNION"
            " SELECT * FROM (SELECT seq, digest, NULL, NULL, received, packet FROM lines"
            " WHERE digest = ?1 AND packet = ?2 ORDER BY seq DESC LIMIT 1)",
            (arrival.digest, arrival.packet),
        )
        return [Seen(*row) for row in rows]

    def add(self, arrival: Arrival, line: Line) -> int:
        """Take a line in; the caller makes room before its batch ends."""
        cursor = self._db.execute(
            "INSERT INTO lines (received, packet, digest, topic, stream, profile, text)"
            " VALUES (?,?,?,?,?,?,?)",
            (
                *(arrival.received, arrival.packet, arrival.digest),
                *(line.topic, line.stream, line.profile, line.text),
            ),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def make_room(self, most: int) -> int:
        """Give up rows until there are `most`. How many of them were waiting lines, which are lost."""
        with self._batch():
            excess = self._count() - most
            if excess <= 0:
                return 0
            cursor = self._db.execute(
                "DELETE FROM lines WHERE seq IN"
                " (SELECT seq FROM lines WHERE text IS NULL ORDER BY seq LIMIT ?)",
                (excess,),
            )
            return self._drop_waiting(excess - cursor.rowcount)

    def _drop_waiting(self, excess: int) -> int:
        dropped = 0
        while dropped < excess:
            cursor = self._db.execute(
                f"DELETE FROM lines WHERE seq IN (SELECT seq FROM lines WHERE {_WAITING}"
                f" AND stream = (SELECT stream FROM lines WHERE {_WAITING}"
                " GROUP BY stream ORDER BY count(*) DESC, min(seq) LIMIT 1) ORDER BY seq LIMIT ?)",
                (min(_PRUNE, excess - dropped),),
            )
            if cursor.rowcount == 0:  # the rest is on its way, and that is bounded
                break
            dropped += cursor.rowcount
        return dropped

    def _count(self) -> int:
        (rows,) = self._db.execute("SELECT count(*) FROM lines").fetchone()
        return int(rows)

    def waiting(self) -> int:
        """Lines that are not read yet."""
        (rows,) = self._db.execute("SELECT count(*) FROM lines WHERE text IS NOT NULL").fetchone()
        return int(rows)

    def streams(self) -> list[str]:
        """Streams with lines that are not read, the one with the oldest line first."""
        rows = self._db.execute(
            "SELECT stream FROM lines WHERE text IS NOT NULL GROUP BY stream ORDER BY min(seq)"
        )
        return [stream for (stream,) in rows]

    def waits(self, stream: str, until: float) -> bool:
        """Whether a line of `stream` that arrived until then (wall clock) is not read yet."""
        (found,) = self._db.execute(
            "SELECT EXISTS (SELECT 1 FROM lines WHERE text IS NOT NULL AND stream = ? AND received <= ?)",
            (stream, until),
        ).fetchone()
        return bool(found)

    def open(self, stream: str, profile: str) -> None:
        """Context is about to hold this stream."""
        with self._batch():
            self._db.execute("INSERT OR REPLACE INTO streams VALUES (?, ?)", (stream, profile))
            self._db.execute(
                "DELETE FROM streams WHERE rowid <= (SELECT rowid FROM streams"
                " ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
                (_STREAMS,),
            )

    def opened(self) -> list[tuple[str, str]]:
        """Name and profile of the streams that context may hold: those with lines most recently."""
        return list(self._db.execute("SELECT name, profile FROM streams ORDER BY rowid"))

    def bundled(self, stream: str) -> list[Line]:
        """The lines of the stream's oldest append that is not read; empty when none was made."""
        return self._lines(
            "append = (SELECT min(append) FROM lines WHERE stream = ?1 AND text IS NOT NULL)", stream, -1
        )

    def unbundled(self, stream: str, limit: int) -> list[Line]:
        """The stream's oldest lines that are in no append."""
        return self._lines("append IS NULL", stream, limit)

    def _lines(self, condition: str, stream: str, limit: int) -> list[Line]:
        rows = self._db.execute(
            "SELECT topic, stream, profile, text, seq FROM lines"
            f" WHERE text IS NOT NULL AND stream = ?1 AND {condition} ORDER BY seq LIMIT ?2",
            (stream, limit),
        )
        return [Line(*row) for row in rows]

    def bundle(self, lines: list[Line]) -> None:
        """These lines go together, for ever: context knows them by the last one's number."""
        self._change(
            "UPDATE lines SET append = ? WHERE stream = ? AND seq BETWEEN ? AND ? AND append IS NULL",
            *(lines[-1].seq, lines[0].stream, lines[0].seq, lines[-1].seq),
        )

    def part(self, stream: str, serial: int) -> None:
        """Each line of a refused append is an append of its own."""
        self._change("UPDATE lines SET append = seq WHERE stream = ? AND append = ?", stream, serial)

    def read(self, stream: str, serial: int) -> int:
        """Context has everything that was sent up to `serial`. How many lines that were."""
        with self._batch():
            cursor = self._db.execute(
                "UPDATE lines SET text = NULL WHERE stream = ? AND append <= ? AND text IS NOT NULL",
                (stream, serial),
            )
            return cursor.rowcount

    def addresses(self) -> list[tuple[str, str, str]]:
        """Topic, stream and profile of the lines that are not read."""
        return list(
            self._db.execute("SELECT DISTINCT topic, stream, profile FROM lines WHERE text IS NOT NULL")
        )

    def redirect(self, topic: str, stream: str, profile: str) -> None:
        """What came on `topic` goes behind what there is, to `stream`: its serials must grow there, too."""
        changed = "FROM lines WHERE text IS NOT NULL AND topic = ?3 AND (stream, profile) IS NOT (?1, ?2)"
        values = (stream, profile, topic)
        with self._batch():
            self._db.execute(
                "INSERT INTO lines (received, packet, digest, topic, stream, profile, text)"
                f" SELECT received, packet, digest, topic, ?1, ?2, text {changed} ORDER BY seq",
                values,
            )
            self._db.execute(f"DELETE {changed}", values)

    def drop(self, topic: str) -> int:
        """No route leads to a stream from `topic` any more. How many lines are lost."""
        with self._batch():
            cursor = self._db.execute("DELETE FROM lines WHERE text IS NOT NULL AND topic = ?", (topic,))
            return cursor.rowcount

    def _change(self, statement: str, *values: object) -> None:
        with self._batch():
            self._db.execute(statement, values)
