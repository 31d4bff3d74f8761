"""A memory limit around processes: a control group where one can be made, else a limit of address space.

A control group counts what the board counts: anonymous memory, shared memory, and the page cache of the files
that are read, weights included; what is only cache is taken back before anything fails. RLIMIT_AS is weaker:
each process alone may not map more than the whole budget.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_NAME = "ringline-budget"
# files of (limit, peak, events, the controller that must be there) in both versions
_V2 = ("memory.max", "memory.peak", "memory.events", "cgroup.controllers")
_V1 = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control", "memory.usage_in_bytes")


@dataclass(frozen=True)
class ControlGroup:
    directory: Path
    version: int

    @property
    def kind(self) -> str:
        return f"cgroup v{self.version}"

    def wrap(self, command: list[str]) -> list[str]:
        """The command, started inside the group."""
        enter = f'echo $$ > {shlex.quote(str(self.directory / "cgroup.procs"))} && exec "$@"'
        return ["sh", "-c", enter, "sh", *command]

    def peak_mb(self) -> float:
        return int((self.directory / self._files[1]).read_text()) / 2**20

    def killed(self) -> int:
        """Processes that the kernel has killed for want of memory."""
        events = dict(line.split() for line in (self.directory / self._files[2]).read_text().splitlines())
        return int(events.get("oom_kill", 0))

    def pinned_mb(self) -> float:
        """What cannot be taken back: anonymous and shared memory, without the cache of files."""
        stat = dict(line.split() for line in (self.directory / "memory.stat").read_text().splitlines())
        keys = ("anon", "shmem") if self.version == 2 else ("total_rss", "total_shmem")
        return sum(int(stat.get(key, 0)) for key in keys) / 2**20

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    @property
    def _files(self) -> tuple[str, str, str, str]:
        return _V2 if self.version == 2 else _V1


@dataclass(frozen=True)
class AddressSpace:
    kb: int

    kind = "RLIMIT_AS of each process"

    def wrap(self, command: list[str]) -> list[str]:
        return ["sh", "-c", f'ulimit -v {self.kb} && exec "$@"', "sh", *command]

    def peak_mb(self) -> float:
        return float("nan")

    def killed(self) -> int:
        return 0

    def pinned_mb(self) -> float:
        return float("nan")

    def remove(self) -> None:
        pass


MemoryLimit = ControlGroup | AddressSpace


def memory_limit(megabytes: int, root: Path = ROOT) -> MemoryLimit:
    """The strictest limit that this machine and this user allow."""
    for parent, version in ((root, 2), (root / "memory", 1)):
        found = _control_group(parent, version, megabytes << 20)
        if found is not None:
            return found
    return AddressSpace(megabytes << 10)


def _control_group(parent: Path, version: int, limit: int) -> ControlGroup | None:
    limit_file, _, _, probe = _V2 if version == 2 else _V1
    if not (parent / probe).exists():
        return None
    group = ControlGroup(parent / f"{_NAME}-{os.getpid()}", version)
    try:
        if version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        group.directory.mkdir()
        (group.directory / limit_file).write_text(str(limit))
    except OSError:
        group.remove()
        return None
    return group
