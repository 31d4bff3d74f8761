"""The history on disk: what comes back after a restart, a kill in the middle of a write, and damage."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from services.draft import history_file
from services.draft.history import ANSWER_TOKENS, REQUEST_TOKENS, Answer, History
from services.draft.history_file import HistoryFile, header, newest, parse, record

VOCABULARY = "a vocabulary"


def answer(i: int, length: int = 20) -> Answer:
    return Answer.of([i, 1, 2], [100 + i] * length)


def plain(answers: list[Answer]) -> list[tuple[int, list[int]]]:
    return [(a.request, a.tokens.tolist()) for a in answers]


def write(path: Path, answers: list[Answer], tokens: int = 10_000) -> None:
    file = HistoryFile(path, VOCABULARY, tokens)
    file.load()
    file.start()
    for one in answers:
        file.keep(one)
    file.stop(10.0)


def load(path: Path, tokens: int = 10_000, vocabulary: str = VOCABULARY) -> list[Answer]:
    return HistoryFile(path, vocabulary, tokens).load()


def test_answers_come_back_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "draft" / "history.bin"
    write(path, [answer(1), answer(2)])
    write(path, [answer(3)])
    assert plain(load(path)) == plain([answer(1), answer(2), answer(3)])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_file_stays_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "history.bin"
    for begin in range(0, 100, 10):
        write(path, [answer(i) for i in range(begin, begin + 10)], tokens=300)
        assert path.stat().st_size < 48 + 4 * (2 * 300 + 10 * 30)
    kept = load(path, tokens=300)
    assert plain(kept) == plain([answer(i) for i in range(100 - len(kept), 100)])
    assert len(kept) == 300 // 24


@given(st.integers(0, 400))
def test_a_write_that_was_cut_off_costs_only_its_own_answers(cut: int) -> None:
    whole = header(VOCABULARY) + b"".join(record(answer(i)) for i in range(3))
    reading = parse(whole[: min(cut, len(whole))], header(VOCABULARY))
    assert reading.problem == ""
    assert plain(reading.answers) == plain([answer(i) for i in range(3)][: len(reading.answers)])
    rest = whole[reading.good : cut]
    assert len(rest) < max(len(header(VOCABULARY)), len(record(answer(0))))


def test_after_a_cut_the_next_answers_are_appended_behind_the_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "history.bin"
    write(path, [answer(1), answer(2)])
    os.truncate(path, path.stat().st_size - 5)
    write(path, [answer(3)])
    assert plain(load(path)) == plain([answer(1), answer(3)])


@given(st.integers(0, 48 + 3 * 104 - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed_or_ends_the_reading(at: int, change: int) -> None:
    """No answer comes back that was not written, but those in front of the damage do."""
    raw = bytearray(header(VOCABULARY) + b"".join(record(answer(i)) for i in range(3)))
    raw[at] ^= change
    reading = parse(bytes(raw), header(VOCABULARY))
    assert plain(reading.answers) == plain([answer(i) for i in range(3)][: len(reading.answers)])
    assert reading.problem or reading.good < len(raw)


def test_a_damaged_file_is_set_aside_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "history.bin"
    write(path, [answer(1), answer(2), answer(3)])
    raw = bytearray(path.read_bytes())
    raw[-30] ^= 1
    path.write_bytes(raw)
    with capture_logs() as said:
        assert plain(load(path)) == plain([answer(1), answer(2)])
    assert path.with_suffix(".damaged").read_bytes() == bytes(raw)
    assert len(said) == 1
    assert said[0]["event"].startswith(f"{path}: it is damaged at byte ")
    assert plain(load(path)) == plain([answer(1), answer(2)])


@pytest.mark.parametrize("content", [b"no history at all" * 10, b"\0" * 200, header("another vocabulary")])
def test_a_file_of_something_else_is_set_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.bin"
    path.write_bytes(content)
    write(path, [answer(1)])
    assert path.with_suffix(".damaged").read_bytes() == content
    assert plain(load(path)) == plain([answer(1)])


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "history.bin"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    assert load(path) == []
    assert path.with_suffix(".damaged").stat().st_size == 1 << 30


def test_a_directory_that_cannot_be_written_costs_the_history_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    write(tmp_path / "file" / "history.bin", [answer(1)])
    assert load(tmp_path / "file" / "history.bin") == []


def test_a_full_disk_leaves_no_half_answer(tmp_path: Path) -> None:
    """The limit lets a part of the second write through."""
    path = tmp_path / "history.bin"
    file = HistoryFile(path, VOCABULARY, 10_000)
    file.keep(answer(1))
    file._write()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        with capture_logs() as said:
            file.keep(answer(2))
            file._write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert [line["event"] for line in said] == ["the history cannot be written; answers go on without it"]
    file.keep(answer(3))
    file._write()
    assert plain(load(path)) == plain([answer(1), answer(3)])


def test_only_so_many_answers_wait_for_the_disk(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "history.bin", VOCABULARY, 1 << 20)
    for i in range(history_file.MOST_WAITING + 10):
        file.keep(answer(i))
    file.start()
    file.stop(10.0)
    kept = load(tmp_path / "history.bin", 1 << 20)
    assert plain(kept) == plain([answer(i) for i in range(10, history_file.MOST_WAITING + 10)])


_WRITER = """
import sys
from pathlib import Path
from services.draft import history_file
from services.draft.history import Answer
history_file.WRITE_EVERY_S = 0.0001
file = history_file.HistoryFile(Path(sys.argv[1]), "a vocabulary", 2000)
file.load()
file.start()
i = 0
while True:
    file.keep(Answer.of([i % 1000, 1, 2], [100 + i % 1000] * 200))
    i += 1
"""


def test_a_writer_killed_at_any_moment_leaves_whole_answers(tmp_path: Path) -> None:
    path = tmp_path / "history.bin"
    for round_ in range(4):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)])
        end = time.monotonic() + 30
        while (not path.exists() or path.stat().st_size < 4000) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.02 * round_)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = load(path, tokens=2000)
        assert found
        assert all(len(set(a.tokens[3:].tolist())) == 1 for a in found)
        assert not path.with_suffix(".damaged").exists()


def test_of_a_long_request_the_end_is_kept_and_of_a_long_answer_the_beginning() -> None:
    long = Answer.of(list(range(1000)), list(range(10_000)))
    assert long.request == REQUEST_TOKENS
    assert long.tokens[:REQUEST_TOKENS].tolist() == list(range(1000 - REQUEST_TOKENS, 1000))
    assert long.tokens[REQUEST_TOKENS:].tolist() == list(range(ANSWER_TOKENS))


def test_what_is_nothing_to_draft_from_does_not_enter() -> None:
    told: list[Answer] = []
    history = History(1000, keep=told.append)
    history.add(Answer.of([1], [2, 3]))
    history.add(Answer.of([1], [5] * 600))
    assert (history.index.documents, told) == (0, [])
    history.add(Answer.of([1], [2, 3, 4, 5]))
    assert (history.index.documents, len(told)) == (1, 1)


def test_the_newest_answers_that_fit_are_kept() -> None:
    answers = [answer(i) for i in range(5)]
    assert newest(answers, 0) == []
    assert newest(answers, 48) == answers[-2:]
    assert newest(answers, 10_000) == answers


def test_documents_that_come_and_go_change_the_version() -> None:
    history = History(200)
    versions = []
    for i in range(30):
        history.add(Answer.of([i], [1, 2, 3, 4, 5]))
        versions.append(history.version)
    assert versions == sorted(set(versions))
    assert len(history.kinship(np.array([3], np.int32))) == history.index.documents
