"""The lexicon's file: passages of text as tokens of one vocabulary, each with how often it was found.

0    magic "RLLEXICN" | format u32 | passages u32 | tokens u32 | 0 u32 |
     BLAKE2b-256 of the vocabulary's hash | name of the model, 64 bytes, padded with 0
120  BLAKE2b-256 of everything else
152  counts u32[passages] | lengths u32[passages] | tokens u32[tokens]
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.config.errors import RinglineError
from shared.config.whole_file import replace_file

MAGIC = b"RLLEXICN"
FORMAT = 1
MAX_TOKENS = 1 << 20
MAX_PASSAGES = 1 << 17
MAX_COUNT = 1 << 20

_HEADER = struct.Struct("<8sIIII32s64s")
_DIGEST = 32
_REBUILD = "build it again with `ringline lexicon build`"


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """int32 tokens, at least one, and how often the passage was found."""

    tokens: NDArray[np.int32]
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """As they stand in the file: int32 tokens of all passages, one behind the other; lengths and counts."""

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]
    counts: NDArray[np.int32]


def write_lexicon(path: Path, passages: Sequence[Passage], model: str, vocabulary: str) -> None:
    """Replace the file at `path`. RinglineError when it cannot be written; then it is left as it was."""
    raw = _encode(passages, model, vocabulary)
    try:
        replace_file(path, raw)
    except OSError as error:
        raise RinglineError(
            f"{path}: cannot be written: {error.strerror}; check --out and the disk"
        ) from None


def read_lexicon(path: Path, vocabulary: str, n_vocab: int) -> Passages:
    """The passages of the file. RinglineError: missing, damaged, of another vocabulary or version."""
    most = _HEADER.size + _DIGEST + 4 * (2 * MAX_PASSAGES + MAX_TOKENS)
    try:
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise RinglineError(f"{path}: cannot be read: {error.strerror}; check draft.lexicon") from None
    if len(raw) > most:
        raise RinglineError(f"{path}: more than {most} bytes are too many for a lexicon; {_REBUILD}")
    return _decode(path, raw, vocabulary, n_vocab)


def _encode(passages: Sequence[Passage], model: str, vocabulary: str) -> bytes:
    tokens = sum(len(passage.tokens) for passage in passages)
    name = model.encode()[:64].decode("utf-8", "ignore").encode()
    head = _HEADER.pack(MAGIC, FORMAT, len(passages), tokens, 0, _hash(vocabulary), name)
    counts = [min(passage.count, MAX_COUNT) for passage in passages]
    lengths = [len(passage.tokens) for passage in passages]
    body = np.array([*counts, *lengths], "<u4").tobytes()
    body += b"".join(passage.tokens.astype("<u4").tobytes() for passage in passages)
    return head + _digest(head, body) + body


def _decode(path: Path, raw: bytes, vocabulary: str, n_vocab: int) -> Passages:
    if len(raw) < _HEADER.size + _DIGEST or not raw.startswith(MAGIC):
        raise RinglineError(f"{path}: it is no lexicon; {_REBUILD}")
    _, format_, passages, tokens, _, wanted, name = _HEADER.unpack_from(raw)
    if format_ != FORMAT:
        raise RinglineError(f"{path}: it was built by another version (format {format_}); {_REBUILD}")
    head, body = raw[: _HEADER.size], raw[_HEADER.size + _DIGEST :]
    if _digest(head, body) != raw[_HEADER.size : _HEADER.size + _DIGEST]:
        raise RinglineError(f"{path}: it is damaged; {_REBUILD}")
    if wanted != _hash(vocabulary):
        model = name.rstrip(b"\0").decode("utf-8", "replace")
        raise RinglineError(
            f"{path}: it was built for {model}, whose vocabulary models.target does not have; "
            f"build it again with `ringline lexicon build --model` and the target's name"
        )
    values = np.frombuffer(body, "<u4")
    split = _split(values, passages, tokens, n_vocab)
    if split is None:
        raise RinglineError(f"{path}: its parts contradict each other; {_REBUILD}")
    return split


def _split(values: NDArray[np.uint32], n: int, tokens: int, n_vocab: int) -> Passages | None:
    """None when the parts contradict each other: a digest can be forged, it keeps no one from trying."""
    if len(values) != 2 * n + tokens or n > MAX_PASSAGES or tokens > MAX_TOKENS:
        return None
    counts, lengths, text = values[:n], values[n : 2 * n], values[2 * n :]
    if int(lengths.sum(dtype=np.uint64)) != tokens or (n and int(lengths.min()) == 0):
        return None
    if (tokens and int(text.max()) >= n_vocab) or (n and int(counts.max()) > MAX_COUNT):
        return None
    return Passages(*(part.astype(np.int32) for part in (text, lengths, counts)))


def _hash(vocabulary: str) -> bytes:
    return hashlib.blake2b(vocabulary.encode(), digest_size=32).digest()


def _digest(head: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(head + body, digest_size=_DIGEST).digest()
