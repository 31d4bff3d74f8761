"""Answers that are known beforehand, in a cache: the target's greedy answer to every question of a workload.

One JSON file a workload and model, `<data>/cache/bench/trace-<workload>-<digest>.json`; another model, profile
or data file is another digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.greedy import GreedyAnswers
from bench.workloads import Workload
from shared.config.directories import make_private
from shared.config.errors import RinglineError
from shared.config.settings import Paths
from shared.model.open import ModelFile

_MOST_BYTES = 64 << 20


class Traced(BaseModel):
    """A question with its answer. `answer` has no stop token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    key: str
    prompt: list[int]
    answer: list[int]
    finish: str


class Trace(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    model: str
    digest: str
    past: int
    items: list[Traced]


def trace_of(workload: Workload, file: ModelFile, paths: Paths, threads: int) -> Trace:
    """From the cache, or computed now, which takes minutes for a large model and is said on stderr."""
    digest = _digest(workload.digest, file.info.sha256)
    path = paths.cache / "bench" / f"trace-{workload.name}-{digest}.json"
    if path.is_file():
        return _read(path)
    answers = GreedyAnswers(file.load(threads), workload, _progress(workload)).run()
    trace = Trace(
        workload=workload.name,
        model=file.info.name,
        digest=digest,
        past=workload.past,
        items=[
            Traced(id=q.id, key=q.key, prompt=q.tokens, answer=a.tokens, finish=a.finish)
            for q, a in zip(workload.questions, answers, strict=True)
        ],
    )
    write_whole(path, trace.model_dump_json())
    return trace


def write_whole(path: Path, text: str) -> None:
    """A file of the cache, never half of one."""
    make_private(path.parent, "the cache of the benchmarks")
    staging = path.with_suffix(".new")
    with os.fdopen(os.open(staging, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    staging.replace(path)


def _read(path: Path) -> Trace:
    if path.stat().st_size > _MOST_BYTES:
        raise RinglineError(f"{path} is too large for a trace; remove it")
    try:
        return Trace.model_validate_json(path.read_bytes())
    except ValidationError:
        raise RinglineError(f"{path} is not a trace of this version; remove it") from None


def _digest(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def _progress(workload: Workload) -> Any:
    total, said = len(workload.questions), [-1]

    def say(done: int) -> None:
        if done * 10 // total != said[0]:
            said[0] = done * 10 // total
            print(f"answers to {workload.name}: {done} of {total}", file=sys.stderr, flush=True)

    return say
