"""Making the shared-memory files so that nothing can fail later: a page that cannot be had is found here
and not as a SIGBUS in the middle of an answer."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

from shared.config.errors import RinglineError

POOL = "kv.pool"
CONTROL = "kv.ctl"


def check_space(directory: Path, needed: int) -> None:
    """RinglineError when the file system has less than `needed` bytes free."""
    status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize
    if free < needed:
        raise RinglineError(_too_small(directory, needed, free))


def create(path: Path, size: int) -> int:
    """A new file of `size` bytes, every page allocated. Returns its descriptor."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.close(fd)
        path.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT):
            status = os.statvfs(path.parent)
            raise RinglineError(_too_small(path.parent, size, status.f_bavail * status.f_frsize)) from None
        raise RinglineError(f"{path} of {size} bytes cannot be made: {error.strerror}") from None
    return fd


def open_existing(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def map_whole(fd: int) -> mmap.mmap:
    """A shared, writable mapping that keeps the descriptor's open file description alive. Closes `fd`.

    Its pages are mapped at once: a process has its final size from the start.
    """
    try:
        return mmap.mmap(fd, os.fstat(fd).st_size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    finally:
        os.close(fd)


def remove(directory: Path) -> None:
    for name in (CONTROL, POOL):
        (directory / name).unlink(missing_ok=True)


def _too_small(directory: Path, needed: int, free: int) -> str:
    return (
        f"the pool needs {needed / 1e6:.1f} MB and {directory} has {free / 1e6:.1f} MB free: "
        "lower context.pool_mb, or give it more shared memory (containers: shm_size or a larger tmpfs volume)"
    )
