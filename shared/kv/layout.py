"""Layout of kv.ctl.

    offset  bytes
    0       8      magic "RLKVCTL\\0"
    8       4      layout version; 0 while the files are being made: not ready
    12      4      CRC-32 of generation, length and description
    16      8      generation: changes whenever the files are made anew
    24      8      next sequence id (written alone, in one store; not part of the CRC)
    32      4      length of the description
    36      4      zero
    40      ...    description: what the files hold (`ControlSpec`), JSON
    4096    ...    allocator: bitmap and reference counts of the blocks, C++ atomics (native.BlockAllocator)
    A       ...    records: what context needs to go on after it was killed (services.context.records)

A = 4096 + the allocator's bytes, rounded up to 4096. Integers are in the machine's byte order: the files
never leave it.
"""

from __future__ import annotations

import struct
import zlib

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.config.settings import KvFormat
from shared.kv.geometry import KvGeometry
from shared.native import BlockAllocator

LAYOUT_VERSION = 3
PAGE = 4096
VERSION_OFFSET = 8
NEXT_SEQUENCE_OFFSET = 24

_MAGIC = b"RLKVCTL\0"
_HEADER = struct.Struct("=8sIIQQII")
_MAX_DESCRIPTION = PAGE - _HEADER.size


class ControlSpec(BaseModel):
    """What must be equal for the files of an earlier owner to be used again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    planes: tuple[tuple[int, int, int], ...]
    models: tuple[str, ...]  # SHA-256 of the GGUF behind each plane
    kv: KvFormat
    n_blocks: int
    block_bytes: int
    chunk: int  # longest commit of a prefill
    step: int  # longest commit while decoding
    record_slots: int
    record_blocks: int
    record_tokens: int
    record_bytes: int  # of all records

    @property
    def geometry(self) -> KvGeometry:
        return KvGeometry(self.planes, self.n_blocks, self.kv)

    @property
    def records_offset(self) -> int:
        return PAGE + _pages(BlockAllocator.bytes_needed(self.n_blocks))

    @property
    def control_bytes(self) -> int:
        return self.records_offset + _pages(self.record_bytes)

    def differences(self, other: ControlSpec) -> str:
        """The fields that differ, e.g. 'n_blocks 307, here 614'."""
        mine, theirs = self.model_dump(), other.model_dump()
        return ", ".join(
            f"{name} {mine[name]}, here {theirs[name]}" for name in mine if mine[name] != theirs[name]
        )


class BadControlError(Exception):
    """Bytes that are no header of this layout; the message says why."""


def write_header(buffer: memoryview, generation: int, spec: ControlSpec) -> None:
    """Everything but the version, which makes the files valid and is written last (`mark_ready`)."""
    text = spec.model_dump_json().encode()
    if len(text) > _MAX_DESCRIPTION:
        raise ValueError(f"the description of kv.ctl has {len(text)} bytes, {_MAX_DESCRIPTION} fit")
    checked = _checked(generation, text)
    _HEADER.pack_into(buffer, 0, _MAGIC, 0, zlib.crc32(checked), generation, 1, len(text), 0)
    buffer[_HEADER.size : _HEADER.size + len(text)] = text


def mark_ready(buffer: memoryview) -> None:
    struct.pack_into("@I", buffer, VERSION_OFFSET, LAYOUT_VERSION)


def read_header(head: bytes) -> tuple[int, ControlSpec]:
    """Generation and description in the first page of kv.ctl. BadControlError when they are not to be
    trusted."""
    if len(head) < _HEADER.size:
        raise BadControlError("it is too short")
    magic, version, crc, generation, _, length, _ = _HEADER.unpack_from(head)
    if magic != _MAGIC:
        raise BadControlError("it does not begin with Ringline's magic")
    if version != LAYOUT_VERSION:
        ready = f"its layout is version {version}, this program's {LAYOUT_VERSION}"
        raise BadControlError("it was never finished" if version == 0 else ready)
    text = head[_HEADER.size : _HEADER.size + length]
    if len(text) != length or crc != zlib.crc32(_checked(generation, text)):
        raise BadControlError("its header is damaged")
    try:
        return generation, ControlSpec.model_validate_json(text)
    except ValidationError:
        raise BadControlError("its description is not one of this version") from None


def _checked(generation: int, text: bytes) -> bytes:
    return struct.pack("=QI", generation, len(text)) + text


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
