"""The owner's side of the two files: made, found again after a crash, removed at the end.

nothing there ─────────────────────────────▶ made anew
left by a dead owner, same description ────▶ reattached
left by a dead owner, anything else ───────▶ removed, made anew (one warning says why)
owner alive ───────────────────────────────▶ RinglineError
"""

from __future__ import annotations

import os
import struct
import time
from contextlib import closing, suppress
from pathlib import Path

import structlog

from shared.config.directories import make_private
from shared.config.errors import RinglineError
from shared.kv import files
from shared.kv.layout import (
    NEXT_SEQUENCE_OFFSET,
    PAGE,
    BadControlError,
    ControlSpec,
    mark_ready,
    read_header,
    write_header,
)
from shared.kv.locks import OwnerLock, Writer, is_writing, writers
from shared.native import KvPool

_log = structlog.get_logger()


class Segment:
    """kv.pool and kv.ctl, owned. `recovered`: the records are those of an owner that was killed."""

    def __init__(
        self, directory: Path, lock: OwnerLock, spec: ControlSpec, generation: int, recovered: bool
    ) -> None:
        self.directory = directory
        self.spec = spec
        self.generation = generation
        self.recovered = recovered
        self._lock = lock
        self._pool_fd = files.open_existing(directory / files.POOL)
        self._control = memoryview(files.map_whole(files.open_existing(directory / files.CONTROL)))

    @property
    def files(self) -> tuple[Path, Path]:
        return self.directory / files.POOL, self.directory / files.CONTROL

    @property
    def allocator(self) -> memoryview:
        return self._control[PAGE : self.spec.records_offset]

    @property
    def records(self) -> memoryview:
        return self._control[self.spec.records_offset :][: self.spec.record_bytes]

    def map_pool(self) -> KvPool:
        """kv.pool in this process, to copy blocks."""
        path = self.directory / files.POOL
        return KvPool(
            files.map_whole(files.open_existing(path)), self.spec.n_blocks, self.spec.planes, self.spec.kv
        )

    @property
    def next_sequence(self) -> int:
        return int(struct.unpack_from("@Q", self._control, NEXT_SEQUENCE_OFFSET)[0])

    @next_sequence.setter
    def next_sequence(self, value: int) -> None:
        struct.pack_into("@Q", self._control, NEXT_SEQUENCE_OFFSET, value)

    def writers(self) -> list[Writer]:
        """Processes that map the pool for writing."""
        return writers(self._pool_fd)

    def is_writing(self, writer: Writer) -> bool:
        return is_writing(self._pool_fd, writer)

    def close(self) -> None:
        """A clean stop: nothing is left in the directory."""
        files.remove(self.directory)
        os.close(self._pool_fd)
        self._lock.close()


def open_segment(directory: Path, spec: ControlSpec) -> Segment:
    """Own the files in `directory`. RinglineError when they are owned already or do not fit into memory."""
    make_private(directory, "paths.memory")
    lock = OwnerLock(directory)
    try:
        generation = _reattach(directory, spec)
        if generation is not None:
            return Segment(directory, lock, spec, generation, recovered=True)
        generation = _create(directory, spec)
        return Segment(directory, lock, spec, generation, recovered=False)
    except BaseException:
        lock.close()
        raise


def remove_unowned(directory: Path) -> None:
    """What a killed owner left, when it is needed no more; what is owned stays."""
    if not directory.is_dir():
        return
    with suppress(RinglineError), closing(OwnerLock(directory)):
        files.remove(directory)


def _reattach(directory: Path, spec: ControlSpec) -> int | None:
    """The generation of a leftover that can be used again; any other leftover is removed."""
    if not any((directory / name).exists() for name in (files.CONTROL, files.POOL)):
        return None
    try:
        return _check_leftover(directory, spec)
    except BadControlError as error:
        _log.warning("shared memory of an earlier run replaced", directory=str(directory), why=str(error))
    files.remove(directory)
    return None


def _check_leftover(directory: Path, spec: ControlSpec) -> int:
    control, pool = directory / files.CONTROL, directory / files.POOL
    try:
        with control.open("rb") as file:
            generation, found = read_header(file.read(PAGE))
        sizes = control.stat().st_size, pool.stat().st_size
    except OSError as error:
        raise BadControlError(f"{error.filename} cannot be read ({error.strerror})") from None
    if found != spec:
        raise BadControlError(f"it was made for something else: {found.differences(spec)}")
    if sizes != (spec.control_bytes, spec.geometry.pool_bytes):
        raise BadControlError(f"the files have {sizes[0]} and {sizes[1]} bytes")
    return generation


def _create(directory: Path, spec: ControlSpec) -> int:
    files.check_space(directory, spec.control_bytes + spec.geometry.pool_bytes)
    generation = time.time_ns() // 1000
    try:
        os.close(files.create(directory / files.POOL, spec.geometry.pool_bytes))
        control = memoryview(files.map_whole(files.create(directory / files.CONTROL, spec.control_bytes)))
    except BaseException:
        files.remove(directory)
        raise
    write_header(control, generation, spec)
    mark_ready(control)
    return generation
