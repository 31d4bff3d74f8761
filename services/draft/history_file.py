"""The history on disk, so that a restarted draft service knows its plant.

    0    magic "RLANSWER" | format u32 | 0 u32 | BLAKE2b-256 of the vocabulary's hash
    48   records: words u32 | CRC-32 u32 of what follows | tokens of the request u32 | tokens u32 …

Answers are appended by a thread of its own, a few at a time: nothing waits for the disk. A process that is
killed while it writes leaves half a record at the end, which is cut off at the next start. When the file has
grown to twice its bound, the newest half is written anew beside it and put in its place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import threading
import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog

from services.draft.history import ANSWER_TOKENS, REQUEST_TOKENS, Answer
from shared.config.sparse_log import SparseWarning
from shared.config.whole_file import replace_file

MAGIC = b"RLANSWER"
FORMAT = 1
WRITE_EVERY_S = 5.0
MOST_WAITING = 256  # answers; of more the oldest are not written

_HEADER = struct.Struct("<8sII32s")
_RECORD = struct.Struct("<II")
_MOST_WORDS = 1 + REQUEST_TOKENS + ANSWER_TOKENS
_MOST_BYTES = 32 << 20  # twice the largest history there can be, and what is written at once

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file holds. `good`: bytes up to the end of the last whole record; `problem`: what is wrong."""

    answers: list[Answer]
    good: int
    problem: str = ""


class HistoryFile:
    """One writer only: the draft service, of which there is one (its role lock). `tokens` is the bound."""

    def __init__(self, path: Path, vocabulary: str, tokens: int) -> None:
        self._path = path
        self._header = header(vocabulary)
        self._tokens = tokens
        self._waiting: deque[Answer] = deque(maxlen=MOST_WAITING)
        self._words = 0  # in the file
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._unwritable = SparseWarning("the history cannot be written; answers go on without it")

    def load(self) -> list[Answer]:
        """The answers on disk, the oldest first, within the bound. A damaged file is set aside."""
        reading = Reading([], 0)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            reading = self._read()
            if reading.problem:
                self._set_aside(reading)
        except OSError as error:
            self._unwritable(file=str(self._path), reason=error.strerror)
        kept = newest(reading.answers, self._tokens)
        self._words = sum(map(words, reading.answers))
        return kept

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Write what waits and end."""
        self._stop.set()
        self._thread.join(timeout_s)

    def keep(self, answer: Answer) -> None:
        """To be written soon."""
        self._waiting.append(answer)

    # --- the thread ---

    def _run(self) -> None:
        while not self._stop.wait(WRITE_EVERY_S):
            self._write()
        self._write()

    def _write(self) -> None:
        answers = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not answers:
            return
        try:
            self._append(answers)
            if self._words > 2 * self._tokens:
                self._compact()
        except OSError as error:
            self._unwritable(file=str(self._path), reason=error.strerror)

    def _append(self, answers: list[Answer]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._path, flags, 0o600), "ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            raw = (b"" if size else self._header) + b"".join(map(record, answers))
            try:
                if file.write(raw) != len(raw):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(size)  # the next records must not stand behind half a one
                raise
        self._words += sum(map(words, answers))

    def _compact(self) -> None:
        kept = newest(self._read().answers, self._tokens)
        self._replace(kept)

    # --- files ---

    def _read(self) -> Reading:
        try:
            if self._path.stat().st_size > _MOST_BYTES:
                return Reading([], 0, "it is too large for a history")
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return Reading([], 0)
        reading = parse(raw, self._header)
        if not reading.problem and reading.good < len(raw):
            os.truncate(self._path, reading.good)
        return reading

    def _set_aside(self, reading: Reading) -> None:
        aside = self._path.with_suffix(".damaged")
        self._path.replace(aside)
        _log.error(
            f"{self._path}: {reading.problem}; it is set aside as {aside.name}, "
            f"{len(reading.answers)} answers could be read and are kept"
        )
        self._replace(reading.answers)

    def _replace(self, answers: list[Answer]) -> None:
        replace_file(self._path, self._header + b"".join(map(record, answers)))
        self._words = sum(map(words, answers))


def header(vocabulary: str) -> bytes:
    """`vocabulary`: the hash of the vocabulary that the tokens belong to."""
    return _HEADER.pack(MAGIC, FORMAT, 0, hashlib.blake2b(vocabulary.encode(), digest_size=32).digest())


def words(answer: Answer) -> int:
    """Its size in the file and in the history: one more than its tokens."""
    return 1 + len(answer.tokens)


def record(answer: Answer) -> bytes:
    body = struct.pack("<I", answer.request) + answer.tokens.astype("<u4").tobytes()
    return _RECORD.pack(len(body) // 4, zlib.crc32(body)) + body


def parse(raw: bytes, expected: bytes) -> Reading:
    """The answers in a file's bytes, up to where they end or are damaged."""
    if not raw.startswith(expected):
        if not raw or (len(raw) < len(expected) and expected.startswith(raw)):
            return Reading([], 0)
        other = raw[: len(MAGIC)] == MAGIC and len(raw) >= len(expected)
        problem = "it was written with another vocabulary or version" if other else "it is no history"
        return Reading([], 0, problem)
    answers: list[Answer] = []
    at = len(expected)
    while at + _RECORD.size <= len(raw):
        length, checksum = _RECORD.unpack_from(raw, at)
        body = raw[at + _RECORD.size : at + _RECORD.size + 4 * length]
        if length <= _MOST_WORDS and len(body) < 4 * length:
            break  # half a record: the process was killed
        answer = _answer(body) if length <= _MOST_WORDS and zlib.crc32(body) == checksum else None
        if answer is None:
            return Reading(answers, at, f"it is damaged at byte {at}")
        answers.append(answer)
        at += _RECORD.size + len(body)
    return Reading(answers, at)


def newest(answers: list[Answer], tokens: int) -> list[Answer]:
    """The last of them that have at most `tokens` tokens together."""
    total = 0
    for i in range(len(answers) - 1, -1, -1):
        total += words(answers[i])
        if total > tokens:
            return answers[i + 1 :]
    return answers


def _answer(body: bytes) -> Answer | None:
    values = np.frombuffer(body, "<u4")
    if len(values) == 0 or values[0] > REQUEST_TOKENS or values[0] >= len(values) or values.max() >> 31:
        return None
    return Answer(values[1:].astype(np.int32), int(values[0]))
