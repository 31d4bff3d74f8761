"""The catalogue is consistent with itself, and `ringline models` says what is wrong in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.config.settings import Paths
from shared.model.catalogue import CATALOGUE, Entry
from shared.model.cli import app
from shared.model.open import open_model
from tests.unit.tiny_gguf import write_tiny

pytestmark = pytest.mark.usefixtures("logging_ends_with_the_command")


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_the_packages_of_an_entry_hold_all_of_its_bytes(entry: Entry) -> None:
    assert sum(package.size for package in entry.packages) == entry.size
    assert len({package.name for package in entry.packages}) == len(entry.packages)
    assert len(entry.sha256) == 64
    assert entry.filename == f"{entry.name}.gguf"


def test_an_unknown_name_is_one_line_with_the_known_ones(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "gpt-9", "--data", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert all(entry.name in result.stderr for entry in CATALOGUE)


def test_list_shows_every_model_and_which_are_here(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / CATALOGUE[0].filename).touch()
    lines = CliRunner().invoke(app, ["list", "--data", str(tmp_path)]).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [entry.name for entry in CATALOGUE]
    assert [line.split()[-1] for line in lines[1:]] == ["yes", "no", "no"]


def test_verify_finds_a_model_with_other_bytes_than_the_catalogue_says(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / CATALOGUE[0].filename).write_bytes(b"GGUF")
    result = CliRunner().invoke(app, ["verify", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert f"ringline models fetch {CATALOGUE[0].name}" in result.stdout


def test_verify_removes_a_weight_cache_with_a_flipped_bit(tmp_path: Path) -> None:
    """Opening checks the directory only; a damaged weight is what `verify` is for."""
    source = write_tiny(tmp_path / "tiny.gguf")
    model = open_model(str(source), Paths(data=tmp_path))
    raw = bytearray(model.path.read_bytes())
    raw[model.tensors[0][4]] ^= 1
    model.path.write_bytes(raw)
    result = CliRunner().invoke(app, ["verify", str(source), "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert model.tensors[0][0] in result.stdout
    assert not model.path.exists()
