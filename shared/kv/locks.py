"""Who owns the files and who writes into the pool, as file locks: the kernel drops them when a process dies.

- The owner (context) holds `flock` on the directory itself: nothing is left behind, no second owner is
  possible.
- Each writer (verifier, draft) holds a shared lock on one byte of kv.pool, `role << 32 | pid`, through the
  open file description of its mapping (OFD lock): it lasts exactly as long as the mapping does. Context asks
  for these locks before it gives a vanished writer's blocks to somebody else.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Literal

from shared.config.errors import RinglineError

WriterRole = Literal["verifier", "draft"]
Writer = tuple[WriterRole, int]  # role and process id

_ROLES: tuple[WriterRole, ...] = ("verifier", "draft")
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
_SPAN = 1 << 32


class OwnerLock:
    """Held from construction to `close` or death."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise RinglineError(
                f"{directory} is owned by another context service that is running: stop it, "
                "or set paths.memory to another directory"
            ) from None

    def close(self) -> None:
        os.close(self._fd)


def hold_writer_lock(fd: int, role: WriterRole) -> None:
    """Mark this process as a writer for as long as `fd`'s open file description lives."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK, _byte(role, os.getpid()), 1))


def is_writing(fd: int, writer: Writer) -> bool:
    """Whether that process still maps kv.pool. `fd` is another open file description of the same file."""
    return _conflict(fd, _byte(*writer), 1) is not None


def writers(fd: int) -> list[Writer]:
    """Every process that maps kv.pool for writing."""
    found: list[Writer] = []
    at, end = 0, len(_ROLES) * _SPAN
    while at < end and (byte := _conflict(fd, at, end - at)) is not None:
        found.append((_ROLES[byte // _SPAN], byte % _SPAN))
        at = byte + 1
    return found


def _byte(role: WriterRole, pid: int) -> int:
    return _ROLES.index(role) * _SPAN + pid


def _lock(kind: int, start: int, length: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)


def _conflict(fd: int, start: int, length: int) -> int | None:
    """First locked byte at or behind `start` of a lock that reaches into the range; None when there is
    none."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK, start, length))
    kind, _, first, _, _ = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else int(first)
