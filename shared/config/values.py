"""Kinds of values in the settings: what no service could use is refused where it is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

MAX_CPUS = 8192  # of the largest Linux there is
MAX_THREADS = 64
MAX_PATH = 4095  # bytes, without the terminating zero
MAX_PATH_PART = 255  # bytes of one name in a path
MAX_STOPS = 8
COLDEST = 0.01  # the lowest temperature above 0
MAX_STOP_CHARS = 64


def _check_affinity(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, list | tuple) and len(value) <= MAX_THREADS and all(map(_is_cpu, value)):
        return value
    raise ValueError(
        f'must be "auto" or a list of CPU numbers (at most {MAX_THREADS}, each below {MAX_CPUS}); '
        "[] leaves the choice to the system"
    )


def _is_cpu(value: object) -> bool:
    return type(value) is int and 0 <= value < MAX_CPUS


def _check_text(text: str) -> str:
    """A control character is no part of a name: it would end it (C), or the line it is shown on."""
    control = next((c for c in text if ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or c in "\u2028\u2029"), None)
    if control is not None:
        raise ValueError(f"must not hold the control character U+{ord(control):04X}")
    return text


def _check_path(path: Path) -> Path:
    _check_text(str(path))
    if len(os.fsencode(path)) > MAX_PATH:
        raise ValueError(f"a path has at most {MAX_PATH} bytes")
    if any(len(os.fsencode(part)) > MAX_PATH_PART for part in path.parts):
        raise ValueError(f"a name in a path has at most {MAX_PATH_PART} bytes")
    return path


def _check_model(name: str) -> str:
    _check_path(Path(name))
    return name


def _check_temperature(value: float) -> float:
    if 0 < value < COLDEST:
        raise ValueError(f"must be 0 (always the likeliest token) or at least {COLDEST}")
    return value


def _check_stop(text: str) -> str:
    if "\ufffd" in text:
        raise ValueError("must not hold U+FFFD: it stands for bytes that are no text")
    return text


Megabytes = Annotated[int, Field(ge=1, le=1 << 20)]
Threads = Annotated[int, Field(ge=1, le=MAX_THREADS)]
# CPU of each thread (repeated when there are more threads); "auto": shared.config.cpus.
Affinity = Annotated[Literal["auto"] | tuple[int, ...], BeforeValidator(_check_affinity)]
Word = Annotated[str, Field(max_length=256), AfterValidator(_check_text)]
# Never empty: the broker would make one up for each connection, and keep no alarm while the gateway is away.
ClientId = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_check_text)]
Host = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(_check_text)]
FilePath = Annotated[Path, AfterValidator(_check_path)]
ModelName = Annotated[str, Field(min_length=1), AfterValidator(_check_model)]

# How answers are sampled; what each does is said in shared.sampling.
Temperature = Annotated[float, Field(ge=0, le=5), AfterValidator(_check_temperature)]
TopK = Annotated[int, Field(ge=0, le=1 << 20)]
TopP = Annotated[float, Field(gt=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
RepetitionPenalty = Annotated[float, Field(ge=0.5, le=2)]
Seed = Annotated[int, Field(ge=0, lt=2**53)]
Acceptance = Literal["match", "ratio"]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS), AfterValidator(_check_stop)]
