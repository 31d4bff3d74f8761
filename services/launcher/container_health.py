"""A container's health check that ends what has hung: Docker restarts only a container that has ended.

<paths.runtime>/<service>.heard     pid, start and the time of the last check that found this process alive

Checks come and go, so what they know is in that file. Times are monotonic milliseconds, which all containers
of a machine share and which no clock synchronisation moves.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from services.launcher.hang import CONTEXT, why_hung
from shared.bus.messages import ServiceStatus, StatusReply
from shared.bus.role_lock import Holder, holder_of
from shared.config.settings import Settings

_MAX_BYTES = 64


def end_if_hung(settings: Settings, name: str, reply: StatusReply | None) -> str | None:
    """Kill the service's process when it has hung; what was wrong with it, None when nothing was.

    `reply` is context's answer, None when it gave none.
    """
    holder = holder_of(settings.paths, name)
    if holder is None:
        return None
    file = settings.paths.runtime / f"{name}.heard"
    service = None if reply is None else next((s for s in reply.services if s.role == name), None)
    now_ms = time.monotonic_ns() // 1_000_000
    heard_ms = _last_heard(file, holder)
    if service is not None or (reply is None and name != CONTEXT and heard_ms is not None):
        heard_ms = now_ms  # without context nobody can say more
        file.write_text(f"{holder.pid} {holder.started_ms} {heard_ms}\n")
    why = _judge(holder, heard_ms, service, now_ms, settings.launcher.hang_s)
    if why is None or not _is_service(holder.pid, name):
        return None
    os.kill(holder.pid, signal.SIGKILL)
    return why


def _judge(
    holder: Holder, heard_ms: int | None, service: ServiceStatus | None, now_ms: int, hang_s: float
) -> str | None:
    since_ms = holder.started_ms if heard_ms is None else heard_ms
    busy_s = 0.0 if service is None else service.busy_s
    return why_hung((now_ms - since_ms) / 1000, heard_ms is not None, busy_s, hang_s)


def _last_heard(file: Path, holder: Holder) -> int | None:
    """When a check found this very process alive."""
    try:
        with file.open("rb") as opened:
            pid, started_ms, heard_ms = map(int, opened.read(_MAX_BYTES).split())
    except (OSError, ValueError):
        return None
    return heard_ms if (pid, started_ms) == holder else None


def _is_service(pid: int, name: str) -> bool:
    """Whether that process, of this container, is the service: the number may be another container's."""
    try:
        return f"services.{name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
