"""One process for each role in a runtime directory: a second one is refused before it disturbs the first.

<paths.runtime>/<role>.lock     locked (flock) as long as its process lives; says which one that is
<paths.runtime>/<role>.heard    what health checks know about that process; goes when it ends cleanly
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from shared.bus.endpoints import Endpoints
from shared.config.errors import RinglineError
from shared.config.settings import Paths

PATIENCE_S = 3.0  # what a predecessor that was killed may need to be gone
_RETRY_S = 0.05
_MAX_BYTES = 64


class Holder(NamedTuple):
    """Process id, and when it took its place in monotonic milliseconds."""

    pid: int
    started_ms: int


@contextmanager
def sole_process(paths: Paths, role: str, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the role's lock. RinglineError, naming the holder, when it is not free within `patience_s`."""
    Endpoints.of(paths)  # makes the directory, or says why it cannot be used
    path = lock_file(paths, role)
    try:
        fd = _acquire(path, time.monotonic() + patience_s)
    except OSError as error:
        raise RinglineError(f"{path} cannot be locked: {error.strerror}; remove it") from None
    if fd is None:
        holder = holder_of(paths, role)
        who = f"process {holder.pid}" if holder else "another process"
        raise RinglineError(
            f"{role} runs already in {paths.runtime}, as {who}: stop it first, or set another paths.runtime"
        )
    try:
        yield
    finally:
        if _is_at(path, fd):
            with suppress(OSError):
                heard_file(paths, role).unlink()
            path.unlink()  # whoever has opened it meanwhile sees that it is gone and makes a new one
        os.close(fd)


def remove_unheld(paths: Paths) -> None:
    """Remove the files of processes that were killed, their sockets too; whoever runs keeps its own."""
    endpoints = Endpoints.named(paths)
    for path in paths.runtime.glob("*.lock"):
        with suppress(RinglineError), sole_process(paths, path.stem, patience_s=0.0):  # its end removes them
            for file in endpoints.bound_by(path.stem):
                file.unlink(missing_ok=True)


def lock_file(paths: Paths, role: str) -> Path:
    return paths.runtime / f"{role}.lock"


def heard_file(paths: Paths, role: str) -> Path:
    return paths.runtime / f"{role}.heard"


def holder_of(paths: Paths, role: str) -> Holder | None:
    """Who has taken that place last; None when nobody has."""
    try:
        with lock_file(paths, role).open("rb") as file:
            pid, started_ms = map(int, file.read(_MAX_BYTES).split())
    except (OSError, ValueError):
        return None
    return Holder(pid, started_ms)


def holds_lock(paths: Paths, role: str, pid: int) -> bool:
    """Whether that process, of this user and container, holds the role's lock at this moment.

    The number in the file may be that of a killed process, which another one has now, or another container's.
    """
    try:
        lock = lock_file(paths, role).stat(follow_symlinks=False)
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return any(_locks(descriptor, lock) for descriptor in descriptors)


def _locks(descriptor: Path, lock: os.stat_result) -> bool:
    """Whether /proc/<pid>/fd/<number> is that file, with a lock on it."""
    info = descriptor.parent.with_name("fdinfo") / descriptor.name
    try:
        return os.path.samestat(descriptor.stat(), lock) and b"FLOCK" in info.read_bytes()
    except OSError:
        return False


def _acquire(path: Path, deadline: float) -> int | None:
    """The locked descriptor; None when somebody else holds the lock until `deadline`."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if _lock(fd) and _is_at(path, fd):
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d %d\n" % (os.getpid(), time.monotonic_ns() // 1_000_000), 0)
            return fd
        os.close(fd)
        if time.monotonic() >= deadline:
            return None
        time.sleep(_RETRY_S)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, fd: int) -> bool:
    """Whether `path` still leads to the open file."""
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(fd))
    except FileNotFoundError:
        return False
