"""A health check kills what has hung, and nothing that is still loading or cannot be judged."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.launcher import container_health
from services.launcher.container_health import end_if_hung
from services.launcher.hang import BUSY_S, START_S
from shared.bus.role_lock import heard_file, lock_file
from shared.config.settings import Paths, Settings
from tests.unit.test_hang import reply

# Takes the place of the verifier, with its name in the command line.
VERIFIER = (
    "import sys; from pathlib import Path; from shared.bus.role_lock import sole_process;"
    "from shared.config.settings import Paths\n"
    "with sole_process(Paths(runtime=Path(sys.argv[1])), 'verifier'):\n"
    "    print('held', flush=True); sys.stdin.read()"
)


class Check:
    """Health checks at times of one's choice, of a process that holds the verifier's place."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.settings = settings
        self.process = subprocess.Popen(
            [sys.executable, "-c", VERIFIER, str(settings.paths.runtime), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"
        self.start_ns = time.monotonic_ns()
        self.now = 0.0
        clock = type("clock", (), {"monotonic_ns": lambda: self.start_ns + int(self.now * 1e9)})
        monkeypatch.setattr(container_health, "time", clock)

    def after(
        self, seconds: float, *, context: bool = True, joined: bool = True, busy: float = 0
    ) -> str | None:
        self.now += seconds
        answer = (reply(verifier=busy) if joined else reply()) if context else None
        return end_if_hung(self.settings, "verifier", answer)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Check]:
    name = getattr(request, "param", "services.verifier")
    made = Check(Settings(paths=Paths(runtime=tmp_path / "run")), monkeypatch, name)
    yield made
    made.close()


def test_who_was_alive_and_is_silent_is_killed_after_that_time(check: Check) -> None:
    assert check.after(100) is None
    assert check.after(29, joined=False) is None
    assert check.after(2, joined=False) == "has hung: not heard for 31 s"
    assert check.process.wait(20) == -9


def test_who_loads_a_model_has_long_to_join(check: Check) -> None:
    """From the first check that saw it."""
    assert check.after(1, joined=False) is None
    assert check.after(START_S - 1, joined=False) is None
    assert check.after(2, joined=False) is not None


def test_silence_while_context_is_away_is_not_counted(check: Check) -> None:
    assert check.after(1) is None
    assert check.after(5000, context=False) is None
    assert check.after(29, joined=False) is None


def test_a_step_that_never_ends_is_a_hang(check: Check) -> None:
    assert check.after(1, busy=BUSY_S) is None
    assert check.after(1, busy=BUSY_S + 1) == "has hung: in one step for 301 s"


@pytest.mark.parametrize("check", ["another.program"], indirect=True)
def test_a_process_that_is_not_the_service_is_never_killed(check: Check) -> None:
    """The number in the lock is that of another container."""
    assert check.after(1) is None
    assert check.after(1000, joined=False) is None
    assert check.process.poll() is None


@pytest.mark.parametrize("check", ["services.verifier", "another.program"], indirect=True)
def test_the_service_of_another_plant_is_never_killed(check: Check, tmp_path: Path) -> None:
    """The holder was killed and its file left; the number is now that of a verifier of another plant."""
    number = lock_file(check.settings.paths, "verifier").read_bytes()
    mine = check.settings.paths.model_copy(update={"runtime": tmp_path / "mine"})
    mine.runtime.mkdir(mode=0o700)
    lock_file(mine, "verifier").write_bytes(number)
    check.settings = check.settings.model_copy(update={"paths": mine})
    assert check.after(1) is None
    assert check.after(1000, joined=False) is None
    with lock_file(mine, "verifier").open("rb") as other:  # locked, but by somebody else
        fcntl.flock(other, fcntl.LOCK_EX)
        assert check.after(1, joined=False) is None
    assert check.process.poll() is None


def _is_a_directory(file: Path) -> None:
    file.mkdir()


def _leads_elsewhere(file: Path) -> None:
    file.symlink_to(file.with_name("precious"))


@pytest.mark.parametrize("in_the_way", [_is_a_directory, _leads_elsewhere])
def test_a_note_that_cannot_be_kept_is_one_line_and_kills_nobody(
    check: Check, capsys: pytest.CaptureFixture[str], in_the_way: Callable[[Path], None]
) -> None:
    file = heard_file(check.settings.paths, "verifier")
    in_the_way(file)
    assert check.after(1) is None
    error = capsys.readouterr().err
    assert error.startswith(f"ringline: {file} cannot be written: ")
    assert error.count("\n") == 1
    assert check.after(5000, joined=False) is None
    assert check.process.poll() is None
    assert not file.with_name("precious").exists()
    assert check.after(1, busy=BUSY_S + 1) is not None


def test_a_full_disk_kills_nobody_who_was_well_all_the_time(
    check: Check, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then there is room again, just when context was started anew and the verifier is about to join."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        assert check.after(1) is None
        assert check.after(5000) is None
        assert "No space left on device" in capsys.readouterr().err
    assert check.after(15, joined=False) is None
    assert check.after(15, joined=False) is None
    assert check.after(15) is None
    assert check.after(31, joined=False) == "has hung: not heard for 31 s"
    assert capsys.readouterr().err == ""


def test_the_note_is_private_and_goes_with_a_clean_end(check: Check) -> None:
    assert check.after(1) is None
    file = heard_file(check.settings.paths, "verifier")
    assert file.stat().st_mode & 0o777 == 0o600
    check.process.communicate()
    assert list(check.settings.paths.runtime.iterdir()) == []


def test_nothing_is_done_where_nothing_runs(tmp_path: Path) -> None:
    assert end_if_hung(Settings(paths=Paths(runtime=tmp_path)), "context", None) is None
