"""Passages out of the files that a plant has: manuals, code tables, alarm lists, earlier answers.

.txt .md .log    paragraphs, which end at an empty line
.csv .tsv        cells that hold words
.json .jsonl     strings that hold words, at any depth

Text is UTF-8 (with or without a mark at its beginning) or GB18030, which includes GBK.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from shared.config.errors import RinglineError
from shared.config.quote import one_line

MAX_BYTES = 64 << 20  # of one file
_LEAST = 4  # characters of a cell or a string

_CODECS = ("utf-8-sig", "gb18030")
_WORDS = re.compile(r"[^\W\d_]{2}")


def passages(path: Path) -> Iterator[str]:
    """The passages of a file in their order. RinglineError, one line, for a file that cannot be used."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise RinglineError(f"{path}: files of this kind are not read; known are {known}")
    try:
        for passage in reader(_text(path)):
            if cleaned := passage.strip():
                yield cleaned
    except (ValueError, csv.Error, RecursionError) as error:
        kind = path.suffix.lower().removeprefix(".")
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else one_line(str(error), 200)
        raise RinglineError(f"{path}: this is no {kind}: {reason}; mend it or leave it out") from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:  # a device says that its size is 0
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RinglineError(f"{path}: cannot be read: {error.strerror}; check its name and rights") from None
    if len(raw) > MAX_BYTES:
        raise RinglineError(f"{path}: more than {MAX_BYTES >> 20} MB; split it or leave it out")
    for codec in _CODECS:
        try:
            text = raw.decode(codec)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise RinglineError(f"{path}: neither UTF-8 nor GBK text; convert it, or leave it out")


def _paragraphs(text: str) -> Iterator[str]:
    yield from re.split(r"\n\s*\n", text.replace("\r\n", "\n"))


def _cells(text: str) -> Iterator[str]:
    delimiter = max(",;\t", key=text[:4096].count)
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
        yield from filter(_says_something, row)


def _json(text: str) -> Iterator[str]:
    yield from _strings(json.loads(text, parse_int=str))  # numbers say nothing, however long they are


def _json_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):  # not splitlines: JSON may have other line separators inside a string
        if line.strip():
            yield from _json(line)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if _says_something(value):
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _says_something(text: str) -> bool:
    return len(text.strip()) >= _LEAST and _WORDS.search(text) is not None


_READERS: dict[str, Callable[[str], Iterator[str]]] = {
    ".txt": _paragraphs,
    ".md": _paragraphs,
    ".log": _paragraphs,
    ".csv": _cells,
    ".tsv": _cells,
    ".json": _json,
    ".jsonl": _json_lines,
}
