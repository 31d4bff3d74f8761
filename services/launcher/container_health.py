"""A container's health check that ends what has hung: Docker restarts only a container that has ended.

<paths.runtime>/<service>.heard     pid, start, time, alive (1: found alive then; 0: first seen then, loading)

Checks come and go, so what they know of a process is in that file. Times are monotonic milliseconds, which
all containers of a machine share and which no clock synchronisation moves. Where the file cannot be written
nobody is killed for silence: a service that is well must not suffer from a full disk.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

from services.launcher.hang import CONTEXT, why_hung
from shared.bus.messages.status import StatusReply
from shared.bus.role_lock import Holder, heard_file, holder_of, holds_lock
from shared.config.settings import Paths, Settings

_MAX_BYTES = 128


class _Note(NamedTuple):
    """When a check found the process alive, or saw it first."""

    at_ms: int
    alive: bool


def end_if_hung(settings: Settings, name: str, reply: StatusReply | None) -> str | None:
    """Kill the service's process when it has hung; what was wrong with it, None when nothing was.

    `reply` is context's answer, None when it gave none.
    """
    holder = holder_of(settings.paths, name)
    if holder is None:
        return None
    service = None if reply is None else next((s for s in reply.services if s.role == name), None)
    unknown = reply is None and name != CONTEXT  # without context nobody can say more
    now_ms = time.monotonic_ns() // 1_000_000
    note = _noted(heard_file(settings.paths, name), holder, _Note(now_ms, service is not None), unknown)
    busy_s = 0.0 if service is None else service.busy_s
    why = why_hung((now_ms - note.at_ms) / 1000, note.alive, busy_s, settings.launcher.hang_s)
    return why if why is not None and _killed(settings.paths, name, holder.pid) else None


def _noted(path: Path, holder: Holder, found: _Note, unknown: bool) -> _Note:
    """What is known of the process after this check; only `found` where that cannot be kept."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            return _updated(fd, holder, found, unknown)
        finally:
            os.close(fd)
    except OSError as error:
        print(
            f"ringline: {path} cannot be written: {error.strerror}; make room or remove it: until then it is "
            "not noticed when that service falls silent",
            file=sys.stderr,
        )
        return found


def _updated(fd: int, holder: Holder, found: _Note, unknown: bool) -> _Note:
    old = _read(fd, holder)
    if old is None or found.alive:
        new = found
    else:
        new = _Note(found.at_ms, alive=True) if unknown and old.alive else old
    if new != old:  # in place, which a full disk allows once the file has its block
        size = os.pwrite(fd, b"%d %d %d %d\n" % (*holder, *new), 0)
        os.ftruncate(fd, size)
    return new


def _read(fd: int, holder: Holder) -> _Note | None:
    """What an earlier check noted of this very process."""
    line = os.pread(fd, _MAX_BYTES, 0).partition(b"\n")[0]
    try:
        pid, started_ms, at_ms, alive = map(int, line.split())
    except ValueError:
        return None
    return _Note(at_ms, alive == 1) if (pid, started_ms) == holder else None


def _killed(paths: Paths, name: str, pid: int) -> bool:
    """Kill that process, if it is this plant's service: the number may be another container's or plant's."""
    if not (_is_service(pid, name) and holds_lock(paths, name, pid)):
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _is_service(pid: int, name: str) -> bool:
    try:
        return f"services.{name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
