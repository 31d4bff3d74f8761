"""Verifier and draft map the pool that context made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from shared.config.errors import RinglineError
from shared.config.settings import KvFormat
from shared.kv.files import CONTROL, POOL, map_whole, open_existing
from shared.kv.geometry import DRAFT_PLANE, TARGET_PLANE, Plane, describe_plane
from shared.kv.layout import PAGE, BadControlError, ControlSpec, read_header
from shared.kv.locks import WriterRole, hold_writer_lock
from shared.native import KvPool

_PLANE_OF: dict[WriterRole, int] = {"verifier": TARGET_PLANE, "draft": DRAFT_PLANE}


class Attached(NamedTuple):
    pool: KvPool
    generation: int


def attach(directory: Path, role: WriterRole, plane: Plane, kv: KvFormat) -> Attached:
    """Map kv.pool for writing; `plane` is the one that this role writes (TARGET_PLANE, DRAFT_PLANE).

    Call it after Joined, and again when a later Welcome has another generation. As long as the KvPool
    lives, a file lock tells context that this process may still write. RinglineError when there is no pool of
    this layout, geometry and format.
    """
    generation, spec = _read_control(directory / CONTROL)
    _check_plane(directory, role, describe_plane(plane, kv), spec)
    path = directory / POOL
    try:
        fd = open_existing(path)
    except OSError as error:
        raise RinglineError(f"{path} cannot be opened: {error.strerror}; restart context") from None
    size = os.fstat(fd).st_size
    if size != spec.geometry.pool_bytes:
        os.close(fd)
        raise RinglineError(f"{path} has {size} bytes, not {spec.geometry.pool_bytes}: restart context")
    hold_writer_lock(fd, role)
    return Attached(KvPool(map_whole(fd), spec.n_blocks, spec.planes, spec.kv), generation)


def _read_control(path: Path) -> tuple[int, ControlSpec]:
    try:
        with path.open("rb") as file:
            return read_header(file.read(PAGE))
    except OSError as error:
        raise RinglineError(
            f"{path} cannot be read ({error.strerror}): is context running with the same paths.memory?"
        ) from None
    except BadControlError as error:
        raise RinglineError(f"{path}: {error}; restart context with the same release") from None


def _check_plane(directory: Path, role: WriterRole, needed: str, spec: ControlSpec) -> None:
    index = _PLANE_OF[role]
    there = describe_plane(spec.planes[index], spec.kv) if index < len(spec.planes) else "nothing"
    if there != needed:
        raise RinglineError(
            f"{directory}: the pool holds {there} for the {role}, it needs {needed}: "
            "use one configuration for all services and restart context"
        )
