"""The socket directory is private and its paths fit."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shared.bus.endpoints import Endpoints, socket_file
from shared.config.errors import RinglineError
from shared.config.settings import Paths


def test_the_directory_is_made_private(tmp_path: Path) -> None:
    runtime = tmp_path / "a" / "run"
    endpoints = Endpoints.of(Paths(runtime=runtime))
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert socket_file(endpoints.control) == runtime / "control.sock"


def test_a_path_longer_than_the_system_allows_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(RinglineError, match=r"paths\.runtime = .* the system allows 107"):
        Endpoints.of(Paths(runtime=tmp_path / ("d" * 107)))


def test_the_limit_counts_bytes_not_characters(tmp_path: Path) -> None:
    with pytest.raises(RinglineError, match="107"):
        Endpoints.of(Paths(runtime=Path("/tmp") / ("报" * 34)))


def test_a_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    runtime.chmod(0o755)
    with pytest.raises(RinglineError, match="chmod 700"):
        Endpoints.of(Paths(runtime=runtime))


def test_a_directory_that_cannot_be_made_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RinglineError, match=r"set paths\.runtime"):
        Endpoints.of(Paths(runtime=tmp_path / "file" / "run"))
