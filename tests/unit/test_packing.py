"""Packing a weight cache from a model that changes or cannot be read, and onto a disk that is full."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from shared.config.errors import RinglineError
from shared.config.settings import Paths
from shared.model.open import ModelFile, locate, open_model
from shared.model.packing import Packer
from shared.model.report import Advance, LogReport
from tests.unit.tiny_gguf import write_tiny


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf")


class Counting(LogReport):
    """Counts the packings; `hold_s`: how long each of them takes at least."""

    def __init__(self, hold_s: float = 0.0) -> None:
        super().__init__()
        self.packings, self._hold_s = 0, hold_s

    @contextmanager
    def progress(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        self.packings += what.startswith("packing")
        time.sleep(self._hold_s)
        with super().progress(what, total, done) as advance:
            yield advance


def opened(source: Path, report: LogReport | None = None) -> ModelFile:
    return open_model(str(source), Paths(data=source.parent), report)


def left_in_cache(source: Path) -> list[str]:
    return [path.suffix for path in (source.parent / "cache").iterdir() if path.suffix != ".lock"]


def test_a_model_replaced_between_its_header_and_its_data_is_not_packed(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the header of one file would place the data of another, under a cache that looks fresh."""
    disk_usage, other = shutil.disk_usage, write_tiny(tiny.parent / "other")

    def replaced_meanwhile(path: Path) -> Any:
        os.replace(other, tiny)
        return disk_usage(path)

    monkeypatch.setattr(shutil, "disk_usage", replaced_meanwhile)
    with pytest.raises(RinglineError, match=r"tiny\.gguf: the file changed while it was packed"):
        opened(tiny)
    monkeypatch.undo()
    assert left_in_cache(tiny) == []
    report = Counting()
    opened(tiny, report)
    assert report.packings == 1


def test_a_model_written_to_while_it_is_read_is_not_packed(tiny: Path) -> None:
    class Writing(Counting):
        @contextmanager
        def progress(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
            with super().progress(what, total, done) as advance:
                with tiny.open("r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    file.write(b"\1")
                yield advance

    with pytest.raises(RinglineError, match="changed while it was packed"):
        opened(tiny, Writing())
    assert left_in_cache(tiny) == []


def test_a_model_that_cannot_be_read_is_named_not_the_cache(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Packer, "_opened", lambda _: Broken())
    with pytest.raises(RinglineError, match=r"tiny\.gguf: cannot read the model: Input/output error"):
        opened(tiny)
    assert left_in_cache(tiny) == []


def test_a_model_that_is_gone_when_it_is_to_be_packed_is_named(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_usage = shutil.disk_usage

    def gone_meanwhile(path: Path) -> Any:
        tiny.unlink()
        return disk_usage(path)

    monkeypatch.setattr(shutil, "disk_usage", gone_meanwhile)
    with pytest.raises(RinglineError, match=r"tiny\.gguf: cannot read the model: No such file"):
        opened(tiny)


def test_a_disk_that_fills_up_leaves_no_cache_and_the_next_start_packs(tiny: Path) -> None:
    """The limit on file sizes stands for the disk: a write fails in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(RinglineError, match=r"\.rlw: cannot write: File too large"):
            opened(tiny)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left_in_cache(tiny) == []
    opened(tiny)
    assert left_in_cache(tiny) == [".rlw"]


@pytest.mark.parametrize(
    ("code", "said"),
    [(errno.ENOSPC, "No space left on device; free some space"), (errno.EIO, "check the disk")],
)
def test_what_the_cache_s_disk_refuses_is_one_line(
    code: int, said: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    for name in ("disk_usage", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(shutil if name == "disk_usage" else os, name, refuse)
            with pytest.raises(RinglineError, match=rf"\.rlw: cannot write: .*{said}"):
                opened(tiny)
        assert left_in_cache(tiny) == []


def test_a_damaged_tokenizer_of_the_cache_is_packed_again(tiny: Path) -> None:
    model = opened(tiny)
    good = model.path.read_bytes()
    raw = bytearray(good)
    raw[model.directory.tokenizer.offset + 5] ^= 1
    model.path.write_bytes(raw)
    assert opened(tiny).tokenizer().encode("ab") == [14]
    assert model.path.read_bytes() == good
    model.path.unlink()
    with pytest.raises(RinglineError, match=r"\.rlw: cannot read: No such file"):
        model.tokenizer()
    assert opened(tiny).tokenizer().encode("ab") == [14]


def test_a_path_that_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RinglineError, match="File name too long"):
        locate("x" * 300 + ".gguf", Paths(data=tmp_path))


def _open_in_process(source: Path, start: Barrier, packings: multiprocessing.Queue[int]) -> None:
    report = Counting(hold_s=0.3)
    start.wait(60)
    opened(source, report)
    packings.put(report.packings)


def test_processes_that_start_together_pack_a_cold_model_once(tiny: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    packings: multiprocessing.Queue[int] = spawn.Queue()
    start = spawn.Barrier(2)
    processes = [spawn.Process(target=_open_in_process, args=(tiny, start, packings)) for _ in range(2)]
    for process in processes:
        process.start()
    assert sorted(packings.get(timeout=60) for _ in processes) == [0, 1]
    for process in processes:
        process.join(60)
    assert left_in_cache(tiny) == [".rlw"]
