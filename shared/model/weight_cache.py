"""The weight cache of a GGUF: used when it fits, else packed by one process while the others wait."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.config.errors import RinglineError
from shared.model.cache_file import Directory, UnusableCacheError, read_directory
from shared.model.data_files import make_directory, open_lock
from shared.model.packing import Packer
from shared.model.report import Report
from shared.native import PACK_LAYOUT

_LOCK_TIMEOUT_S = 900.0


def ensure_cache(source: Path, name: str, sha256: str | None, cache: Path, report: Report) -> Directory:
    """The directory of `cache`, packed anew from `source` when it is missing, damaged or stale.

    Several processes may ask at once: one packs, the others wait for it. `sha256`: what the source must be,
    or None. RinglineError for a source that cannot be used, a full disk or a wait that takes too long.
    """
    try:
        return usable_directory(source, cache)
    except UnusableCacheError:
        pass
    make_directory(cache.parent)
    with _locked(cache, report):
        try:
            return usable_directory(source, cache)
        except UnusableCacheError as reason:
            if cache.exists():
                report.say(f"{cache}: this weight cache is packed again: {reason}")
        return Packer(source, name, cache, report).run(sha256)


def discard_cache(cache: Path, report: Report) -> None:
    """Remove a cache whose weights are damaged."""
    with _locked(cache, report):
        cache.unlink(missing_ok=True)


def usable_directory(source: Path, cache: Path) -> Directory:
    """The directory of a cache that belongs to `source` as it is; UnusableCacheError says why it does not."""
    directory = read_directory(cache, PACK_LAYOUT)
    try:
        status = source.stat()
    except OSError as error:
        raise RinglineError(f"{source}: cannot read the model: {error.strerror}") from None
    if (directory.source_size, directory.source_mtime_ns) != (status.st_size, status.st_mtime_ns):
        raise UnusableCacheError(f"{source.name} has changed since")
    return directory


@contextmanager
def _locked(cache: Path, report: Report) -> Iterator[None]:
    """Hold the cache's lock file. The kernel drops the lock of a process that dies."""
    fd = open_lock(cache.with_suffix(".lock"))
    try:
        _wait_for_lock(fd, cache, report)
        yield
    finally:
        os.close(fd)


def _wait_for_lock(fd: int, cache: Path, report: Report) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    told = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RinglineError(f"{cache}: another process packs it for 15 minutes; stop it") from None
        except OSError as error:
            raise RinglineError(f"{cache}: cannot lock: {error.strerror}; set paths.data") from None
        if not told:
            report.say(f"{cache.stem}: another process is packing the weights, waiting for it")
            told = True
        time.sleep(0.1)
