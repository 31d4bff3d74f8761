"""Which CPUs the models' threads run on: the fast ones of a board that has two kinds (big.LITTLE)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.config.settings import Draft, Settings, Verifier

_EQUAL = 1024  # the capacity Linux gives the fastest core


@dataclass(frozen=True)
class CpuPlan:
    """CPU of each thread, by number; empty: wherever the system puts them."""

    verifier: tuple[int, ...]
    draft: tuple[int, ...]


def plan_for_this_machine(settings: Settings) -> CpuPlan:
    """The plan for the CPUs that this process may use (its cpuset).

    Services in containers with different cpusets see different CPUs, and each follows its own share of a plan
    made for what it sees.
    """
    capacities = read_capacities(Path("/sys"), os.sched_getaffinity(0))
    return plan_cpus(settings.verifier, settings.draft, capacities)


def read_capacities(sysfs: Path, cpus: Iterable[int]) -> dict[int, int]:
    """Capacity of each CPU, 1024 being the fastest; all are equal where the kernel does not say (x86)."""
    cpus = sorted(cpus)
    try:
        return {cpu: _read_capacity(sysfs, cpu) for cpu in cpus}
    except (OSError, ValueError):
        return dict.fromkeys(cpus, _EQUAL)


def plan_cpus(verifier: Verifier, draft: Draft, capacities: Mapping[int, int]) -> CpuPlan:
    """Settings that name CPUs are followed; "auto" gives the verifier the fastest, the draft the next ones.

    Where all CPUs are alike the system distributes the threads better than a fixed choice would. The draft is
    left to the system too when the verifier leaves it too few CPUs: it then steps back by its priority.
    """
    fastest = sorted(capacities, key=lambda cpu: (-capacities[cpu], cpu))
    alike = len(set(capacities.values())) <= 1
    if verifier.affinity != "auto":
        theirs = verifier.affinity
    else:
        theirs = () if alike else tuple(fastest[: verifier.threads])
    if draft.affinity != "auto":
        return CpuPlan(theirs, draft.affinity)
    free = tuple(cpu for cpu in fastest if cpu not in theirs)
    fixed = theirs and not alike and len(free) >= draft.threads
    return CpuPlan(theirs, free[: draft.threads] if fixed else ())


def _read_capacity(sysfs: Path, cpu: int) -> int:
    return int((sysfs / f"devices/system/cpu/cpu{cpu}/cpu_capacity").read_text())
