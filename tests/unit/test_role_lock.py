"""One process for each role in a runtime directory."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.bus.endpoints import Endpoints
from shared.bus.role_lock import holder_of, holds_lock, lock_file, remove_unheld, sole_process
from shared.config.errors import RinglineError
from shared.config.settings import Paths

HOLD = (
    "import sys; from pathlib import Path; from shared.bus.role_lock import sole_process;"
    "from shared.config.settings import Paths\n"
    "with sole_process(Paths(runtime=Path(sys.argv[1])), sys.argv[2]): \n"
    "    print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(runtime=tmp_path / "run")


@contextmanager
def holder(paths: Paths, role: str = "draft") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the role's lock."""
    command = [sys.executable, "-c", HOLD, str(paths.runtime), role]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def refusal(paths: Paths) -> str:
    """Why this process cannot be the draft."""
    with pytest.raises(RinglineError) as caught, sole_process(paths, "draft", patience_s=0.1):
        pass
    return str(caught.value)


def test_a_second_process_is_refused_and_told_who_holds_the_place(paths: Paths) -> None:
    with holder(paths) as first:
        assert f"draft runs already in {paths.runtime}, as process {first.pid}: stop" in refusal(paths)
        with sole_process(paths, "verifier", patience_s=0):
            pass


def test_the_file_is_private_and_gone_after_a_clean_end(paths: Paths) -> None:
    with sole_process(paths, "draft"):
        file = lock_file(paths, "draft")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        mine = holder_of(paths, "draft")
        assert mine is not None
        assert mine.pid == os.getpid()
        assert 0 <= time.monotonic() - mine.started_ms / 1000 < 60
    assert list(paths.runtime.iterdir()) == []


def test_what_killed_processes_left_is_removed_and_a_living_one_keeps_its_place(paths: Paths) -> None:
    with holder(paths) as first:
        first.kill()
        first.wait()
        with sole_process(paths, "verifier"):
            remove_unheld(paths)
            assert list(paths.runtime.iterdir()) == [lock_file(paths, "verifier")]


@pytest.mark.parametrize("lives", [True, False])
def test_the_sockets_of_killed_processes_are_removed_too(paths: Paths, lives: bool) -> None:
    """Bound, or just being bound; those of a living process stay."""
    with holder(paths, "context") as first:
        files = Endpoints.of(paths).bound_by("context")
        for file in files:
            file.touch()
        if not lives:
            first.kill()
            first.wait()
        remove_unheld(paths)
        left = [*files, lock_file(paths, "context")] if lives else []
        assert set(paths.runtime.iterdir()) == set(left)


def test_a_killed_holder_leaves_its_place_free(paths: Paths) -> None:
    with holder(paths) as first:
        first.kill()
        first.wait()
        with sole_process(paths, "draft", patience_s=0):
            mine = holder_of(paths, "draft")
            assert mine is not None
            assert mine.pid == os.getpid()


def test_a_predecessor_may_take_a_moment_to_be_gone(paths: Paths) -> None:
    with holder(paths) as first:
        timer = threading.Timer(0.3, first.kill)
        timer.start()
        with sole_process(paths, "draft", patience_s=20):
            assert first.wait() == -9
        timer.join()


def test_who_waited_for_a_lock_file_that_was_removed_does_not_share_the_place(paths: Paths) -> None:
    """Another process takes a new file meanwhile: the lock on the removed one is worth nothing."""
    with sole_process(paths, "draft"):
        lock_file(paths, "draft").unlink()
        with holder(paths) as other:
            assert f"as process {other.pid}:" in refusal(paths)
        assert lock_file(paths, "draft").exists()


def test_the_lock_is_held_by_one_process_and_by_nobody_once_that_was_killed(paths: Paths) -> None:
    """Whatever the file that it left behind says."""
    with holder(paths) as first:
        assert holds_lock(paths, "draft", first.pid)
        assert not holds_lock(paths, "verifier", first.pid)
        with lock_file(paths, "draft").open("rb"):
            assert not holds_lock(paths, "draft", os.getpid())
    first.wait()
    assert holder_of(paths, "draft") is not None
    assert not holds_lock(paths, "draft", first.pid)


def test_what_is_no_file_is_one_line(paths: Paths) -> None:
    lock_file(paths, "draft").mkdir(parents=True)
    paths.runtime.chmod(0o700)
    assert "cannot be locked" in refusal(paths)
