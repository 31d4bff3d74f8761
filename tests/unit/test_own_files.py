"""Context notices that its files were removed or replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from services.context.own_files import OwnFiles
from shared.config.errors import RestartNeeded


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("x")
    other.rename(path)


def rename_directory(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("harm", [remove, replace, rename_directory])
def test_a_file_that_is_gone_or_another_ends_context(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    paths = [directory / "a", directory / "b"]
    for path in paths:
        path.write_text("x")
    files = OwnFiles(paths)
    files.check()
    paths[0].write_text("written, but the same file")
    files.check()
    harm(paths[1])
    with pytest.raises(RestartNeeded, match="was removed or replaced"):
        files.check()


def test_a_file_that_vanished_before_the_first_look_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(RestartNeeded):
        OwnFiles([tmp_path / "none"]).check()
