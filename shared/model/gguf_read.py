"""Reading a GGUF's header: metadata and tensor directory, with every length checked before it is believed.

    magic "GGUF" | version u32 | tensors u64 | keys u64
    keys:     name string | value type u32 | value
    tensors:  name string | dimensions u32 | u64 each, fastest first | type u32 | offset u64 in the data
    padding to `general.alignment`
    data

A string is a u64 length and UTF-8 bytes; an array is an element type u32, a u64 count and its elements. All
numbers are little-endian. The file is not trusted: whatever is in it, the result is a `Gguf` or a
RinglineError that names the file, the key or tensor, and what to do.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.config.errors import RinglineError
from shared.config.quote import quoted, shown
from shared.model.ggml_types import SUPPORTED, supported_names, type_name

Scalar = int | float | bool | str
Value = Scalar | list[int] | list[float] | list[bool] | list[str]

MAX_KEYS = 4096
MAX_TENSORS = 16384
MAX_STRING = 1 << 20
MAX_ELEMENTS = 1 << 21  # of all arrays together; a vocabulary of 256 Ki tokens has about 1.4 million
MAX_HEADER = 1 << 25  # bytes of metadata and tensor directory; the same vocabulary takes about 15 million
MAX_NAME = 256

_STRING, _ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True)
class TensorInfo:
    """One tensor in the file: `rows` x `cols` values, row-major; a vector has one row."""

    name: str
    type: int
    rows: int
    cols: int
    vector: bool  # one-dimensional in the file
    offset: int  # from the start of the file
    nbytes: int


@dataclass(frozen=True)
class Gguf:
    """A GGUF's header. Tensors are in the order of their data and do not overlap."""

    path: Path
    size: int
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(key, f"a whole number from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float) -> float:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def texts(self, key: str) -> list[str]:
        value = self._get(key)
        texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(texts) != len(value):
            raise self._wrong(key, "a list of strings")
        return texts

    def integers(self, key: str) -> list[int]:
        value = self._get(key)
        items = value if isinstance(value, list) else []
        numbers = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
        if not isinstance(value, list) or len(numbers) != len(value):
            raise self._wrong(key, "a list of whole numbers")
        return numbers

    def fail(self, what: str) -> RinglineError:
        return RinglineError(f"{self.path}: {what}")

    def _get(self, key: str) -> Value:
        if key not in self.metadata:
            raise self.fail(f'the GGUF has no key "{key}"; convert the model again or use another file')
        return self.metadata[key]

    def _wrong(self, key: str, wanted: str) -> RinglineError:
        value = shown(self.metadata[key])
        return self.fail(f'key "{key}" is {value}, not {wanted}; the file is damaged or not supported')


def read_gguf(path: Path) -> Gguf:
    """The header of the GGUF at `path`; RinglineError when it is missing, cut off, damaged or unsupported."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 24:
                raise RinglineError(f"{path}: only {size} bytes, not a GGUF; fetch the model again")
            header = file.read(MAX_HEADER)  # not mapped: a file that shrinks now must not kill the process
    except OSError as error:
        raise RinglineError(f"{path}: cannot read the model: {error.strerror or error}") from None
    return _Parser(path, header, size).parse()


class _Parser:
    def __init__(self, path: Path, data: bytes, size: int) -> None:
        self._path = path
        self._data = data  # the file's beginning
        self._size = size  # of the file
        self._at = 0
        self._elements = 0
        self._what = "header"

    def parse(self) -> Gguf:
        n_tensors, n_keys = self._preamble()
        metadata = self._metadata(n_keys)
        alignment = self._alignment(metadata)
        raw = [self._directory_entry() for _ in range(n_tensors)]
        start = -(-self._at // alignment) * alignment
        tensors = sorted((self._located(entry, start, alignment) for entry in raw), key=lambda t: t.offset)
        self._check_layout(tensors)
        return Gguf(self._path, self._size, metadata, tuple(tensors))

    def _preamble(self) -> tuple[int, int]:
        magic, version = self._data[:4], struct.unpack_from("<I", self._data, 4)[0]
        if magic != b"GGUF":
            raise RinglineError(f"{self._path}: not a GGUF (it begins with {magic!r}); give a .gguf file")
        if version not in (2, 3):
            big = int.from_bytes(self._data[4:8], "big") in (2, 3)
            kind = "a big-endian GGUF" if big else f"GGUF version {version}"
            raise RinglineError(f"{self._path}: {kind}; versions 2 and 3, little-endian, are supported")
        n_tensors, n_keys = struct.unpack_from("<QQ", self._data, 8)
        if n_tensors > MAX_TENSORS or n_keys > MAX_KEYS:
            raise self._fail(f"{n_tensors} tensors and {n_keys} keys (at most {MAX_TENSORS} and {MAX_KEYS})")
        self._at = 24
        return n_tensors, n_keys

    def _metadata(self, n_keys: int) -> dict[str, Value]:
        metadata: dict[str, Value] = {}
        for number in range(1, n_keys + 1):
            self._what = f"key number {number}"
            key = self._string(MAX_NAME)
            self._what = f"key {quoted(key)}"
            if key in metadata:
                raise self._fail("it is there twice")
            kind = self._scalar("I")
            metadata[key] = self._array() if kind == _ARRAY else self._value(kind)
        return metadata

    def _alignment(self, metadata: Mapping[str, Value]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment not in {1 << bit for bit in range(3, 17)}:
            self._what = 'key "general.alignment"'
            raise self._fail(f"it is {shown(alignment)}, not a power of two from 8 to 65536")
        return alignment

    def _value(self, kind: int) -> Scalar:
        if kind == _STRING:
            return self._string(MAX_STRING)
        if kind not in _FORMATS:
            raise self._fail(f"value type {kind} is unknown")
        value: Scalar = self._scalar(_FORMATS[kind])
        return value

    def _array(self) -> Value:
        kind, count = self._scalar("I"), self._scalar("Q")
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise self._fail(
                f"with its {count} elements, all lists have {self._elements} (at most {MAX_ELEMENTS})"
            )
        if kind == _STRING:
            return [self._string(MAX_STRING) for _ in range(count)]
        if kind not in _FORMATS:
            raise self._fail(f"arrays of value type {kind} are not supported")
        layout = struct.Struct(f"<{count}{_FORMATS[kind]}")
        return list(layout.unpack(self._take(layout.size)))

    def _directory_entry(self) -> tuple[str, list[int], int, int]:
        self._what = "tensor directory"
        name = self._string(MAX_NAME)
        self._what = f"tensor {quoted(name)}"
        n_dimensions = self._scalar("I")
        if not 1 <= n_dimensions <= 4:
            raise self._fail(f"{n_dimensions} dimensions (1 to 4 are possible)")
        shape = [self._scalar("Q") for _ in range(n_dimensions)]
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _located(self, entry: tuple[str, list[int], int, int], start: int, alignment: int) -> TensorInfo:
        name, shape, number, offset = entry
        self._what = f"tensor {quoted(name)}"
        kind = SUPPORTED.get(number)
        if kind is None:
            raise RinglineError(
                f"{self._path}: {self._what} has type {type_name(number)}, which is not supported; "
                f"use a quantisation of {supported_names()} (for example a Q4_K_M file)"
            )
        cols, rows = shape[0], math.prod(shape[1:])
        if not (0 < cols < 1 << 31 and 0 < rows < 1 << 31) or cols % kind.block:
            raise self._fail(f"shape {shape} does not fit type {kind.name} (blocks of {kind.block})")
        if offset % alignment:
            raise self._fail(f"offset {offset} is not a multiple of {alignment}")
        nbytes = rows * (cols // kind.block) * kind.nbytes
        end = start + offset + nbytes
        if end > self._size:
            raise self._fail(f"it ends at byte {end}, the file has only {self._size}: the file is truncated")
        return TensorInfo(name, number, rows, cols, len(shape) == 1, start + offset, nbytes)

    def _check_layout(self, tensors: list[TensorInfo]) -> None:
        names: set[str] = set()
        end = 0
        for tensor in tensors:
            self._what = f"tensor {quoted(tensor.name)}"
            if tensor.name in names:
                raise self._fail("it is in the directory twice")
            if tensor.offset < end:
                raise self._fail("its data overlaps another tensor's")
            names.add(tensor.name)
            end = tensor.offset + tensor.nbytes

    def _string(self, limit: int) -> str:
        length = self._scalar("Q")
        if length > limit:
            raise self._fail(f"a string of {length} bytes (at most {limit})")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self._fail("a string that is not UTF-8") from None

    def _scalar(self, kind: str) -> int:
        layout = _SCALARS[kind]
        at = self._at
        self._require(layout.size)
        self._at = at + layout.size
        value: int = layout.unpack_from(self._data, at)[0]
        return value

    def _take(self, length: int) -> bytes:
        self._require(length)
        self._at += length
        return self._data[self._at - length : self._at]

    def _require(self, length: int) -> None:
        end = self._at + length
        if end > self._size:
            raise self._fail(f"the file ends inside it, after {self._size} bytes: the file is truncated")
        if end > len(self._data):
            raise self._fail(f"the header goes on to byte {end} (at most {MAX_HEADER})")

    def _fail(self, what: str) -> RinglineError:
        return RinglineError(f"{self._path}: damaged GGUF: {self._what}: {what}; fetch the model again")


_SCALARS = {kind: struct.Struct(f"<{kind}") for kind in _FORMATS.values()}
