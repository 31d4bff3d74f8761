"""Opening the journal's database: its tables, durability, the lock, and a file that is damaged.

`alarms` holds alarms and dead letters, `lines` the log lines of streams, each with a bound of its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
import uuid
from pathlib import Path

import structlog

from shared.config.errors import RinglineError

RESERVE_BYTES = 512 << 10  # of the disk, which new alarms and lines leave to the answers of earlier ones
_LAYOUT = 3
_CACHE_KB = 256  # of SQLite's page cache: it fills within minutes of work and stays so

_SCHEMA = """
CREATE TABLE IF NOT EXISTS alarms (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL,
    state INTEGER NOT NULL,
    outcome INTEGER,
    severity INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    received REAL NOT NULL,
    ts REAL,
    packet INTEGER,
    digest BLOB NOT NULL,
    id_key BLOB,
    content_key BLOB,
    topic TEXT NOT NULL,
    payload BLOB,
    out_topic TEXT NOT NULL,
    profile TEXT NOT NULL,
    out_payload BLOB,
    stream TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS lines (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    append INTEGER,
    received REAL NOT NULL,
    packet INTEGER,
    digest BLOB NOT NULL,
    topic TEXT NOT NULL,
    stream TEXT NOT NULL,
    profile TEXT NOT NULL,
    text TEXT
);
CREATE TABLE IF NOT EXISTS streams (name TEXT PRIMARY KEY, profile TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS subscriptions (filter TEXT PRIMARY KEY);
CREATE INDEX IF NOT EXISTS waiting ON alarms (state, severity DESC, seq);
CREATE INDEX IF NOT EXISTS by_digest ON alarms (digest, seq);
CREATE INDEX IF NOT EXISTS by_id ON alarms (id_key, seq) WHERE id_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS open_lines ON lines (stream, seq) WHERE text IS NOT NULL;
CREATE INDEX IF NOT EXISTS read_lines ON lines (seq) WHERE text IS NULL;
CREATE INDEX IF NOT EXISTS line_by_digest ON lines (digest, seq);
CREATE INDEX IF NOT EXISTS line_by_packet ON lines (digest, packet, seq) WHERE packet IS NOT NULL;
"""
# By whose id an alarm of before came is not known: sent again after the update, it is answered again.
_FROM_LAYOUT_2 = """
DROP INDEX IF EXISTS by_id;
ALTER TABLE alarms RENAME COLUMN id_key TO content_key;
ALTER TABLE alarms ADD COLUMN id_key BLOB;
"""
_FROM_LAYOUT = {  # to the schema above
    1: f"ALTER TABLE alarms ADD COLUMN stream TEXT NOT NULL DEFAULT ''; {_FROM_LAYOUT_2}",
    2: _FROM_LAYOUT_2,
}
# Context remembers each stream's last serial: a journal begun anew goes on above those of the lost one.
_FIRST_SERIAL = (
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'lines', {}"
    " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'lines');"
)


def free_bytes(path: Path) -> int:
    """Free on the database's disk once its write-ahead log has become part of it, at worst."""
    disk = os.statvfs(path.parent)
    try:
        log = os.stat(path.with_name(path.name + "-wal")).st_size
    except FileNotFoundError:
        log = 0
    return disk.f_bavail * disk.f_frsize - log


class DiskFull(Exception):
    """The journal cannot be opened before there is room on its disk."""


def open_database(path: Path) -> sqlite3.Connection:
    """The database at `path`, locked for this process; RinglineError or DiskFull when that cannot be."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull from None
        raise RinglineError(f"{path}: cannot open the journal: {error.strerror}; set paths.data") from None
    try:
        return _connect(path)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise DiskFull from None
        hint = "another gateway uses it; stop that one first" if "locked" in str(error) else str(error)
        raise RinglineError(f"{path}: cannot open the journal: {hint}") from None
    except sqlite3.DatabaseError as error:
        return _connect(_set_aside(path, error))


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {8 << 20}")
        db.execute(f"PRAGMA cache_size = {-_CACHE_KB}")
        (health,) = db.execute("PRAGMA quick_check(1)").fetchone()
        (layout,) = db.execute("PRAGMA user_version").fetchone()
        if health != "ok" or layout not in (0, *_FROM_LAYOUT, _LAYOUT):
            raise sqlite3.DatabaseError(
                health if health != "ok" else f"layout {layout}, this version knows {_LAYOUT}"
            )
        if layout != _LAYOUT:  # a journal that is there opens on a full disk, too
            older = _FROM_LAYOUT.get(layout, "")
            first = _FIRST_SERIAL.format(int(1000 * time.time()))
            db.executescript(
                f"BEGIN IMMEDIATE; {older} {_SCHEMA} {first} PRAGMA user_version = {_LAYOUT}; COMMIT;"
            )
    except BaseException:
        db.close()
        raise
    return db


def _set_aside(path: Path, error: Exception) -> Path:
    """A journal that cannot be read is kept for people; the gateway goes on with a new one."""
    kept = path.with_name(f"{path.name}.damaged-{uuid.uuid4().hex[:8]}")
    structlog.get_logger().error(
        f"journal {path} is damaged ({error}); a new one is begun, look in {kept.name} for unanswered alarms"
    )
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(kept.with_name(kept.name + suffix))
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    return path
