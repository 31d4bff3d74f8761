"""The weight cache's file: one model, re-laid for the kernels, with everything else a service asks of it.

    0      prefix, 72 bytes: magic | format u32 | packed layout u32 | file size u64 |
           directory offset u64 | directory length u64 | BLAKE2b-256 of the 40 bytes before and the directory
    4096   tensors, each aligned to 4096: matrices as `native.pack` leaves them, vectors as plain float32
    …      tokenizer.json
    …      directory: JSON with the source's identity, the model's facts and the place of every part

The prefix is written last and its digest covers the directory, so a cache that was cut off, written by
another version or damaged in its directory is recognised at once. Every part has a digest of its own
(`native.digest`, as fast as memory), checked whenever the weights are loaded.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.model.architecture import Spec
from shared.native import digest

MAGIC = b"RLWEIGHT"
FORMAT = 2
ALIGNMENT = 4096
MAX_DIRECTORY = 16 << 20

_PREFIX = struct.Struct("<8sIIQQQ32s")
_SIGNED = 40  # bytes of the prefix under the digest

Count = Annotated[int, Field(ge=0)]
TensorEntry = tuple[str, int, int, int, int, int]  # as `native.Model` takes it


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Record):
    """A part of the file and its digest."""

    offset: Count
    nbytes: Count
    digest: Count


class Directory(_Record):
    name: str
    sha256: str  # of the GGUF
    source_size: Count
    source_mtime_ns: int
    spec: Spec
    context_length: Count
    vocabulary_hash: str
    stop_tokens: tuple[int, ...]
    phrase_ends: tuple[int, ...]
    chat_template: str
    tensors: tuple[tuple[TensorEntry, Count], ...]  # with the digest
    tokenizer: Part

    def parts(self) -> list[tuple[str, Part]]:
        tensors = [(entry[0], Part(offset=entry[4], nbytes=entry[5], digest=d)) for entry, d in self.tensors]
        return [*tensors, ("tokenizer", self.tokenizer)]


class UnusableCacheError(Exception):
    """This cache cannot be used, and why in a few words. It is rebuilt: users see one line, no error."""


def read_directory(path: Path, layout: int) -> Directory:
    """The directory of the cache at `path`; UnusableCacheError when it is missing, damaged or outdated."""
    try:
        with path.open("rb") as file:
            return _read(file, layout)
    except FileNotFoundError:
        raise UnusableCacheError("there is none yet") from None
    except OSError as error:
        raise UnusableCacheError(f"it cannot be read ({error.strerror})") from None


def _read(file: BinaryIO, layout: int) -> Directory:
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        raise UnusableCacheError("it is not a complete weight cache")
    _, format_, file_layout, size, offset, length, digest = _PREFIX.unpack(prefix)
    if (format_, file_layout) != (FORMAT, layout):
        raise UnusableCacheError("it was written for another version of the kernels")
    if size != file.seek(0, 2) or offset + length != size or length > MAX_DIRECTORY:
        raise UnusableCacheError("it is truncated")
    file.seek(offset)
    raw = file.read(length)
    if _digest(prefix[:_SIGNED], raw) != digest:
        raise UnusableCacheError("its directory is damaged")
    try:
        directory = Directory.model_validate_json(raw)
    except ValidationError:
        raise UnusableCacheError("its directory was written by another version") from None
    if any(part.offset + part.nbytes > offset for _, part in directory.parts()):
        raise UnusableCacheError("its directory is damaged")
    return directory


def write_directory(file: BinaryIO, directory: Directory, layout: int) -> None:
    """Complete the cache in `file`, which stands behind its last part."""
    raw = json.dumps(directory.model_dump(mode="json"), separators=(",", ":")).encode()
    offset = file.tell()
    file.write(raw)
    signed = struct.pack("<8sIIQQQ", MAGIC, FORMAT, layout, offset + len(raw), offset, len(raw))
    file.seek(0)
    file.write(signed + _digest(signed, raw))


def damaged_part(path: Path, directory: Directory) -> str | None:
    """Name of the first part whose bytes are not what was written, or None. Reads the whole file."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole,
        memoryview(whole) as view,
    ):
        return next((name for name, part in directory.parts() if not _intact(view, part)), None)


def _intact(whole: memoryview, part: Part) -> bool:
    with whole[part.offset : part.offset + part.nbytes] as data:
        return digest(data) == part.digest


def _digest(signed: bytes, directory: bytes) -> bytes:
    return hashlib.blake2b(signed + directory, digest_size=32).digest()
