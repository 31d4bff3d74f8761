"""Session records in kv.ctl: what is needed to go on after `kill -9`, readable at every instant.

    slot i:  header A │ header B │ tokens int32[record_tokens]

    header:  CRC-32 of the rest │ length │ serial │ msgpack map (`Record`), empty for a free slot
             4                   4        8        length

A change first appends the new tokens behind the valid ones and then writes the header that is not the newest,
with the next serial. The newest header whose CRC holds counts. Whatever byte the writer is killed at, the
slot
reads as it was before or as it is after; tokens under a valid header are never overwritten, because a slot is
freed (an empty header) before it is used again.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import dataclass
from typing import Annotated, Literal

import msgpack
import structlog
from pydantic import BaseModel, ConfigDict, Field

from services.context.sequence import Sequence
from shared.bus.messages.fields import StopStrings
from shared.bus.messages.requests import Sampling

_HEAD = struct.Struct("=IIQ")
_FIELD_BYTES = 6144  # every field but the block table, at its longest
_BYTES_PER_BLOCK = 5  # of a msgpack integer
_TOKEN_BYTES = 4

_log = structlog.get_logger()

Count = Annotated[int, Field(ge=0, lt=2**53)]


class Record(BaseModel):
    """A sequence or (kind "profile") a pinned prefix. Its tokens, from `first` on, are stored beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal["sequence", "profile"]
    seq: Count
    request_id: Annotated[str, Field(max_length=128)]
    profile: Annotated[str, Field(max_length=64)]
    severity: Count
    sink: Count
    window: Annotated[int, Field(ge=1, lt=2**53)]
    ring: Count
    first: Count
    n_tokens: Count
    prompt_len: Count
    max_tokens: Count
    stop_tokens: Annotated[list[Count], Field(max_length=16)]
    stop: StopStrings
    sampling: Sampling
    kv_len: Count
    draft_kv_len: Count
    epoch: Count
    blocks: list[Count]
    stream: Annotated[str, Field(max_length=128)]
    serial: Count
    forked: bool
    cached_tokens: Count
    passes: Count
    drafted: Count
    accepted: Count
    finish: Annotated[str, Field(max_length=16)]
    token_crc: Count = 0


def record_of(
    sequence: Sequence, kind: Literal["sequence", "profile"] = "sequence", blocks: list[int] | None = None
) -> Record:
    """What is kept of a sequence; `blocks` instead of its whole table."""
    return Record.model_construct(
        kind=kind,
        seq=sequence.seq,
        request_id=sequence.request_id,
        profile=sequence.profile,
        severity=sequence.severity,
        sink=sequence.ring.sink,
        window=sequence.ring.window,
        ring=sequence.ring.capacity,
        first=sequence.first,
        n_tokens=len(sequence.tokens),
        prompt_len=sequence.prompt_len,
        max_tokens=sequence.max_tokens,
        stop_tokens=sequence.stop_tokens,
        stop=sequence.stop,
        sampling=sequence.sampling,
        kv_len=sequence.kv_len,
        draft_kv_len=sequence.draft_kv_len,
        epoch=sequence.epoch,
        blocks=sequence.blocks if blocks is None else blocks,
        stream=sequence.stream,
        serial=sequence.serial,
        forked=sequence.forked,
        cached_tokens=sequence.cached_tokens,
        passes=sequence.passes,
        drafted=sequence.drafted,
        accepted=sequence.accepted,
        finish=sequence.finish,
    )


@dataclass(frozen=True)
class RecordShape:
    """Sizes of the record area. Every slot holds a table of `blocks` entries and `tokens` tokens."""

    slots: int
    blocks: int
    tokens: int

    @property
    def header_bytes(self) -> int:
        size = _HEAD.size + _FIELD_BYTES + _BYTES_PER_BLOCK * self.blocks
        return -(-size // 64) * 64

    @property
    def slot_bytes(self) -> int:
        return 2 * self.header_bytes + -(-self.tokens * _TOKEN_BYTES // 64) * 64

    @property
    def total_bytes(self) -> int:
        return self.slots * self.slot_bytes


@dataclass
class _Written:
    """What a slot holds: serial of its newest header, tokens under it and their running CRC."""

    serial: int = 0
    n_tokens: int = 0
    token_crc: int = 0


class RecordStore:
    """The slots in a writable buffer. One process writes."""

    def __init__(self, buffer: memoryview, shape: RecordShape) -> None:
        self._buffer = buffer
        self._shape = shape
        self._written = [_Written() for _ in range(shape.slots)]

    @property
    def slots(self) -> int:
        return self._shape.slots

    def put(self, slot: int, record: Record, tokens: list[int]) -> None:
        """Make `record` with `tokens` the slot's content. Only tokens behind those already there are
        written."""
        held = self._written[slot]
        crc = self._append(slot, held, tokens)
        fields = record.model_dump()
        fields["token_crc"] = crc
        self._write_header(slot, msgpack.packb(fields))
        held.n_tokens, held.token_crc = len(tokens), crc

    def clear(self, slot: int) -> None:
        self._write_header(slot, b"")
        held = self._written[slot]
        held.n_tokens = held.token_crc = 0

    def load(self) -> dict[int, tuple[Record, list[int]]]:
        """What an earlier owner left, by slot. A slot that is damaged is freed, with a warning."""
        contents = {slot: self._adopt(slot) for slot in range(self._shape.slots)}
        return {slot: content for slot, content in contents.items() if content is not None}

    def _adopt(self, slot: int) -> tuple[Record, list[int]] | None:
        """The newest content that is whole."""
        read = (self._read_header(slot, copy) for copy in (0, 1))
        headers = sorted((header for header in read if header is not None), reverse=True)
        held = self._written[slot]
        for serial, payload in headers:
            held.serial = max(held.serial, serial)
            if not payload:
                return None
            if (content := self._decode(slot, payload)) is not None:
                held.serial = serial
                held.n_tokens, held.token_crc = content[0].n_tokens, content[0].token_crc
                return content
        if headers:
            _log.warning("a session record is damaged and was dropped", slot=slot)
            self.clear(slot)
        return None

    def _decode(self, slot: int, payload: bytes) -> tuple[Record, list[int]] | None:
        try:
            record = Record.model_validate(msgpack.unpackb(payload))
            raw = self._tokens(slot, 0, record.n_tokens)
        except (ValueError, msgpack.UnpackException):
            return None
        return (record, list(raw.cast("i"))) if zlib.crc32(raw) == record.token_crc else None

    def _append(self, slot: int, held: _Written, tokens: list[int]) -> int:
        new = array("i", tokens[held.n_tokens :]).tobytes()
        self._tokens(slot, held.n_tokens, len(tokens) - held.n_tokens)[:] = new
        return zlib.crc32(new, held.token_crc)

    def _tokens(self, slot: int, first: int, count: int) -> memoryview:
        if not 0 <= count <= self._shape.tokens - first:
            raise ValueError(f"tokens [{first}, +{count}) do not fit into a record of {self._shape.tokens}")
        start = slot * self._shape.slot_bytes + 2 * self._shape.header_bytes + first * _TOKEN_BYTES
        return self._buffer[start : start + count * _TOKEN_BYTES]

    def _header_at(self, slot: int, copy: int) -> int:
        return slot * self._shape.slot_bytes + copy * self._shape.header_bytes

    def _write_header(self, slot: int, payload: bytes) -> None:
        if _HEAD.size + len(payload) > self._shape.header_bytes:
            raise ValueError(f"a record of {len(payload)} bytes does not fit")
        held = self._written[slot]
        held.serial += 1
        body = struct.pack("=IQ", len(payload), held.serial) + payload
        frame = struct.pack("=I", zlib.crc32(body)) + body
        at = self._header_at(slot, held.serial % 2)
        self._buffer[at : at + len(frame)] = frame

    def _read_header(self, slot: int, copy: int) -> tuple[int, bytes] | None:
        at = self._header_at(slot, copy)
        crc, length, serial = _HEAD.unpack_from(self._buffer, at)
        if length > self._shape.header_bytes - _HEAD.size:
            return None
        body = bytes(self._buffer[at + 4 : at + _HEAD.size + length])
        return (serial, body[_HEAD.size - 4 :]) if zlib.crc32(body) == crc else None
