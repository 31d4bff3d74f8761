"""Answers that are known beforehand, in a cache: the target's greedy answer to every question of a workload.

One JSON file a workload and model, `<data>/cache/bench/trace-<workload>-<digest>.json`; another model,
profile or data file is another digest.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bench.greedy import GreedyAnswers
from bench.workloads import Workload
from shared.config.directories import make_private
from shared.config.errors import RinglineError
from shared.config.settings import Paths
from shared.config.whole_file import replace_file
from shared.model.open import ModelFile

_MOST_BYTES = 256 << 20

M = TypeVar("M", bound=BaseModel)


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
    path = trace_path(workload, file, paths)
    if path.is_file():
        return read_cached(path, Trace)
    answers = GreedyAnswers(
        file.load(threads), workload, progress(f"answers to {workload.name}", len(workload.questions))
    ).run()
    trace = Trace(
        workload=workload.name,
        model=file.info.name,
        digest=digest_of(workload.digest, file.info.sha256),
        past=workload.past,
        items=[
            Traced(id=q.id, key=q.key, prompt=q.tokens, answer=a.tokens, finish=a.finish)
            for q, a in zip(workload.questions, answers, strict=True)
        ],
    )
    write_whole(path, trace.model_dump_json())
    return trace


def trace_path(workload: Workload, file: ModelFile, paths: Paths) -> Path:
    digest = digest_of(workload.digest, file.info.sha256)
    return paths.cache / "bench" / f"trace-{workload.name}-{digest}.json"


def write_whole(path: Path, text: str) -> None:
    """A file of the cache, never half of one."""
    make_private(path.parent, "the cache of the benchmarks")
    replace_file(path, text.encode())


def read_cached(path: Path, kind: type[M]) -> M:
    """RinglineError when the file is not what this version writes."""
    if path.stat().st_size > _MOST_BYTES:
        raise RinglineError(f"{path} is too large; remove it")
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError:
        raise RinglineError(f"{path} was not written by this version; remove it") from None


def digest_of(*parts: str) -> str:
    """For the name of a file in the cache."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def progress(what: str, total: int) -> Callable[[int], None]:
    """Says on stderr how many are done, every tenth of them."""
    said = -1

    def say(done: int) -> None:
        nonlocal said
        if done * 10 // total != said:
            said = done * 10 // total
            print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)

    return say
