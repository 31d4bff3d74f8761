"""Packing a GGUF into its weight cache: one sequential pass over the source, a few megabytes of memory."""

from __future__ import annotations

import errno
import glob
import hashlib
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shared.config.errors import RinglineError
from shared.model.architecture import chat_template, check_tensors, context_length, model_spec
from shared.model.cache_file import ALIGNMENT, Directory, Part, TensorEntry, write_directory
from shared.model.gguf_read import TensorInfo, read_gguf
from shared.model.report import Advance, Report
from shared.model.tokenizer_build import tokenizer_json
from shared.model.vocabulary import Vocabulary, read_vocabulary
from shared.native import PACK_LAYOUT, digest, pack, packed_bytes

TILE_ROWS = 16  # a packed matrix is a row of equal tiles, so slices of whole tiles are packed alone

_SLICE_BYTES = 8 << 20
_SPARE_BYTES = 64 << 20


class _Identity(NamedTuple):
    """Of a file as it is now; another one when it is replaced or written to."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Packer:
    """Packs one GGUF. Its data are read once, from start to end: hashing and packing see the same bytes.

    RinglineError for a source that cannot be used, that changes meanwhile, or a disk without room.
    """

    def __init__(self, source: Path, name: str, cache: Path, report: Report) -> None:
        self._source, self._name, self._cache, self._report = source, name, cache, report
        self._identity = self._look()  # before the header is read: what it says must hold for the data
        self._gguf = read_gguf(source)
        self._spec = model_spec(self._gguf)
        check_tensors(self._gguf, self._spec)
        self._vocabulary = read_vocabulary(self._gguf)
        self._template = chat_template(self._gguf)
        self._digest = hashlib.sha256()
        self._hashed = 0

    def run(self, sha256: str | None) -> Directory:
        """Write the cache; it appears complete under its name, or not at all."""
        temporary = self._cache.with_name(f"{self._cache.name}.{os.getpid()}.tmp")
        try:
            for left_over in self._cache.parent.glob(f"{glob.escape(self._cache.name)}.*.tmp"):
                left_over.unlink(missing_ok=True)  # of a packer that was killed; the lock is ours
            self._check_space()
            directory = self._write(temporary, sha256)
            temporary.replace(self._cache)
            _sync_directory(self._cache.parent)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "free some space or set paths.data" if full else "check the disk"
            raise RinglineError(f"{self._cache}: cannot write: {error.strerror}; {hint}") from None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        return directory

    def _check_space(self) -> None:
        needed = sum(_stored_bytes(tensor) + ALIGNMENT for tensor in self._gguf.tensors) + _SPARE_BYTES
        free = shutil.disk_usage(self._cache.parent).free
        if free < needed:
            raise RinglineError(
                f"{self._cache.parent}: the weight cache of {self._name} needs {needed / 1e6:.0f} MB, "
                f"{free / 1e6:.0f} MB are free; free some space or set paths.data"
            )

    def _write(self, temporary: Path, sha256: str | None) -> Directory:
        with self._opened() as source, _create(temporary) as target:
            with self._report.progress(f"packing {self._name}", self._gguf.size) as advance:
                entries = [self._tensor(tensor, source, target, advance) for tensor in self._gguf.tensors]
                self._hash_up_to(self._gguf.size, source, advance)
            if self._look() != self._identity:
                raise self._changed()
            self._check_hash(sha256)
            directory = Directory(
                name=self._name,
                sha256=self._digest.hexdigest(),
                source_size=self._identity.size,
                source_mtime_ns=self._identity.mtime_ns,
                spec=self._spec,
                context_length=context_length(self._gguf),
                vocabulary_hash=self._vocabulary.digest(),
                stop_tokens=self._vocabulary.stop_tokens,
                phrase_ends=self._vocabulary.phrase_ends(),
                chat_template=self._template,
                tensors=_with_digests(entries, target),
                tokenizer=_write_tokenizer(self._vocabulary, target),
            )
            write_directory(target, directory, PACK_LAYOUT)
            target.flush()
            os.fsync(target.fileno())
            # The GGUF is not needed again. The new cache comes back in huge pages when it is mapped.
            for written in (source, target):
                os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return directory

    def _tensor(
        self, tensor: TensorInfo, source: BinaryIO, target: BinaryIO, advance: Advance
    ) -> TensorEntry:
        self._hash_up_to(tensor.offset, source, advance)
        offset = _align(target)
        for rows in _slices(tensor):
            raw = self._read(source, rows * tensor.nbytes // tensor.rows, advance)
            target.write(raw if tensor.vector else _packed(tensor, rows, raw))
        nbytes = target.tell() - offset
        return (tensor.name, tensor.type, tensor.rows, tensor.cols, offset, nbytes)

    def _hash_up_to(self, offset: int, source: BinaryIO, advance: Advance) -> None:
        while self._hashed < offset:
            self._read(source, min(offset - self._hashed, _SLICE_BYTES), advance)

    def _read(self, source: BinaryIO, length: int, advance: Advance) -> bytes:
        with _reading(self._source):
            raw = source.read(length)
        if len(raw) != length:
            raise self._changed()
        self._digest.update(raw)
        self._hashed += length
        advance(length)
        return raw

    def _look(self) -> _Identity:
        with _reading(self._source):
            status = self._source.stat()
        return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def _opened(self) -> BinaryIO:
        with _reading(self._source):
            return self._source.open("rb")

    def _changed(self) -> RinglineError:
        return self._gguf.fail("the file changed while it was packed; start again when it is complete")

    def _check_hash(self, sha256: str | None) -> None:
        if sha256 is not None and self._digest.hexdigest() != sha256:
            raise self._gguf.fail(
                f"its SHA-256 is {self._digest.hexdigest()}, the catalogue has {sha256} for {self._name}; "
                f"delete the file and run `ringline models fetch {self._name}`"
            )


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    """Tells a failure to read the model from one to write its cache."""
    try:
        yield
    except OSError as error:
        raise RinglineError(f"{source}: cannot read the model: {error.strerror}; check the disk") from None


def _stored_bytes(tensor: TensorInfo) -> int:
    return tensor.nbytes if tensor.vector else packed_bytes(tensor.type, tensor.rows, tensor.cols)


def _slices(tensor: TensorInfo) -> Iterator[int]:
    """Numbers of rows, whole tiles each but the last, that add up to the tensor's."""
    tile = TILE_ROWS * tensor.nbytes // tensor.rows
    step = TILE_ROWS * max(1, _SLICE_BYTES // tile)
    for start in range(0, tensor.rows, step):
        yield min(step, tensor.rows - start)


def _packed(tensor: TensorInfo, rows: int, raw: bytes) -> bytearray:
    packed = bytearray(packed_bytes(tensor.type, rows, tensor.cols))
    pack(tensor.type, raw, rows, tensor.cols, packed)
    return packed


def _with_digests(entries: list[TensorEntry], target: BinaryIO) -> tuple[tuple[TensorEntry, int], ...]:
    target.flush()
    with mmap.mmap(target.fileno(), 0, access=mmap.ACCESS_READ) as whole, memoryview(whole) as view:
        return tuple((entry, _digest_of(view, entry)) for entry in entries)


def _digest_of(whole: memoryview, entry: TensorEntry) -> int:
    _, _, _, _, offset, nbytes = entry
    with whole[offset : offset + nbytes] as data:
        return digest(data)


def _align(target: BinaryIO) -> int:
    offset = max(ALIGNMENT, -(-target.tell() // ALIGNMENT) * ALIGNMENT)
    return target.seek(offset)


def _write_tokenizer(vocabulary: Vocabulary, target: BinaryIO) -> Part:
    raw = tokenizer_json(vocabulary).encode()
    offset = _align(target)
    target.write(raw)
    return Part(offset=offset, nbytes=len(raw), digest=digest(raw))


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
