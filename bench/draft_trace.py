"""What a draft model would propose behind every prefix of answers that are known, computed ahead.

A device that drafts beside the CPU cannot be had everywhere; `device_pace` replays these proposals at the
device's pace. For each position of an answer the tree that the drafter grows is followed: likeliest leaf
first, on the answer or off it, as far as it is likely. The whole answer is a chain in one scratch tree, and
what leaves it hangs on that chain, so that a pass computes a leaf of every position at once.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from bench.greedy import CHUNK
from bench.private_pool import private_view
from bench.traces import Trace, Traced, digest_of, progress, read_cached, write_whole
from shared.config.settings import Paths
from shared.model.open import ModelFile
from shared.native import BLOCK_TOKENS, Model, Scratch, likeliest_tokens

WIDTH = 3  # likeliest tokens that are kept of a prediction
STEPS = 10  # predictions behind a position at most
FLOOR = -3.5  # a path with a lower log probability is not followed
_ROWS = 64  # of a pass

Path = tuple[int, ...]
Likely = list[tuple[int, float]]  # tokens with their natural log probabilities, likeliest first


@dataclass
class Predictions:
    """`answer[i]`: what follows the prompt and the first i answer tokens; `beside[i]`: what follows them and
    a path of other tokens, whose first one is not the answer's."""

    answer: list[Likely] = field(default_factory=list)
    beside: dict[int, dict[Path, Likely]] = field(default_factory=dict)

    def after(self, i: int, path: Path, truth: list[int]) -> Likely | None:
        """The prediction behind i answer tokens and a path; None when it was not computed."""
        i, off = beside(i, path, truth)
        if off:
            return self.beside.get(i, {}).get(off)
        return self.answer[i] if i < len(self.answer) else None


class Predictor:
    """The draft model with room for the trees of one answer."""

    def __init__(self, model: Model, trace: Trace) -> None:
        longest = max(len(item.prompt) + len(item.answer) for item in trace.items)
        self._most = (STEPS + 1) * (max(len(item.answer) for item in trace.items) + 1)
        self._scratch = Scratch(model, self._most + CHUNK, _ROWS)
        self._view = private_view(model, longest + BLOCK_TOKENS)
        self._prompt: list[int] = []

    def predict(self, item: Traced) -> Predictions:
        found = Predictions()
        self._read(item.prompt[:-1])
        chain = self._chain([item.prompt[-1], *item.answer], found)
        slots: dict[tuple[int, Path], int] = {}
        spent = [0] * len(chain)
        while leaves := list(self._leaves(item, found, spent)):
            for at in range(0, len(leaves), _ROWS):
                self._grow(leaves[at : at + _ROWS], chain, slots, found)
        self._scratch.drop(self._view)
        return found

    def _read(self, prompt: list[int]) -> None:
        """What the last prompt began with too is in the pool."""
        same = (a == b for a, b in zip(prompt, self._prompt, strict=False))
        self._view.length = sum(itertools.takewhile(bool, same))
        self._prompt = prompt
        for at in range(self._view.length, len(prompt), CHUNK):
            tokens = np.array(prompt[at : at + CHUNK], np.int32)
            path = np.arange(len(tokens), dtype=np.int32)
            zeros, none = np.zeros(len(tokens), np.int32), np.zeros(0, np.int32)
            self._scratch.forward([self._view], zeros, tokens, path - 1, none)
            self._scratch.commit(self._view, path)
            self._scratch.reroot(self._view, path)

    def _chain(self, tokens: list[int], found: Predictions) -> list[int]:
        """Scratch slots of the answer's tokens, the prompt's last one first."""
        for at in range(0, len(tokens), _ROWS):
            part = np.array(tokens[at : at + _ROWS], np.int32)
            found.answer += self._forward(part, np.arange(at - 1, at - 1 + len(part), dtype=np.int32))
        return list(range(len(tokens)))

    def _leaves(self, item: Traced, found: Predictions, spent: list[int]) -> Iterator[tuple[int, Path]]:
        """The next path beside the answer that the drafter looks behind, for every position; each once."""
        seen: set[tuple[int, Path]] = set()
        for i in range(len(found.answer)):
            leaf = _next_leaf(i, item.answer, found)
            if leaf is not None and leaf not in seen and spent[leaf[0]] < STEPS:
                seen.add(leaf)
                spent[leaf[0]] += 1
                yield leaf

    def _grow(
        self,
        leaves: list[tuple[int, Path]],
        chain: list[int],
        slots: dict[tuple[int, Path], int],
        found: Predictions,
    ) -> None:
        tokens = np.array([path[-1] for _, path in leaves], np.int32)
        parents = [slots[(i, path[:-1])] if len(path) > 1 else chain[i] for i, path in leaves]
        first = self._scratch.size
        likely = self._forward(tokens, np.array(parents, np.int32))
        for n, ((i, path), prediction) in enumerate(zip(leaves, likely, strict=True)):
            slots[(i, path)] = first + n
            found.beside.setdefault(i, {})[path] = prediction

    def _forward(self, tokens: NDArray[np.int32], parents: NDArray[np.int32]) -> list[Likely]:
        outputs = np.arange(len(tokens), dtype=np.int32)
        self._scratch.forward([self._view], np.zeros(len(tokens), np.int32), tokens, parents, outputs)
        return [likeliest(row) for row in self._scratch.logits()]


def likeliest(row: NDArray[np.float32]) -> Likely:
    """The WIDTH likeliest tokens of a row of logits (the lowest id first among equals)."""
    return [(token, round(logq, 4)) for token, logq in zip(*likeliest_tokens(row, WIDTH), strict=True)]


def _next_leaf(i: int, truth: list[int], found: Predictions) -> tuple[int, Path] | None:
    """Best first from i answer tokens on, the first path whose prediction is missing; as (position, path)."""
    heap: list[tuple[float, Path]] = [(0.0, ())]
    for _ in range(STEPS):
        if not heap:
            return None
        score, path = heapq.heappop(heap)
        likely = found.after(i, path, truth)
        if likely is None:
            at, off = beside(i, path, truth)
            return (at, off) if off else None  # else it lies behind the answer's end
        for token, logq in likely:
            if score - logq <= -FLOOR:
                heapq.heappush(heap, (score - logq, (*path, token)))
    return None


def beside(i: int, path: Path, truth: list[int]) -> tuple[int, Path]:
    """Where a path behind i answer tokens leaves the answer, and what is left of it from there on."""
    known = 0
    while known < len(path) and i < len(truth) and path[known] == truth[i]:
        known, i = known + 1, i + 1
    return i, path[known:]


class Replay:
    """The predictions for all answers of a trace that are drafted for."""

    def __init__(self, trace: Trace, predictions: dict[str, Predictions]) -> None:
        self.trace = trace
        self._predictions = predictions

    def after(self, item: Traced, i: int, path: Path) -> Likely | None:
        """What follows i tokens of an answer and a path; None when it was not computed."""
        found = self._predictions.get(item.id)
        return None if found is None else found.after(i, path, item.answer)


def read_replay(path: FilePath) -> Replay:
    """RinglineError when it is not a replay of this version."""
    content = read_cached(path, _Stored)
    predictions = {
        id_: Predictions(one.answer, {i: {tuple(p): row for p, row in rows} for i, rows in one.beside})
        for id_, one in content.predictions.items()
    }
    return Replay(content.trace, predictions)


def replay_file(trace: Trace, draft: ModelFile, paths: Paths, threads: int) -> FilePath:
    """Where the draft's predictions for the measured answers of a trace are; computed first if need be."""
    path = paths.cache / "bench" / f"draft-{trace.workload}-{digest_of(trace.digest, draft.info.sha256)}.json"
    if not path.is_file():
        measured = trace.items[trace.past :]
        predictor = Predictor(draft.load(threads), trace)
        say = progress(f"drafts for {trace.workload}", len(measured))
        stored: dict[str, _StoredOne] = {}
        for done, item in enumerate(measured):
            say(done)
            stored[item.id] = _stored(predictor.predict(item))
        write_whole(path, _Stored(trace=trace, predictions=stored).model_dump_json())
    return path


class _StoredOne(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    answer: list[list[tuple[int, float]]]
    beside: list[tuple[int, list[tuple[list[int], list[tuple[int, float]]]]]]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    trace: Trace
    predictions: dict[str, _StoredOne]


def _stored(one: Predictions) -> _StoredOne:
    beside = [(i, [(list(path), row) for path, row in rows.items()]) for i, rows in one.beside.items()]
    return _StoredOne(answer=one.answer, beside=beside)
