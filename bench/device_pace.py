"""SIMULATION of a device that runs the draft model beside the CPU: the draft service with a replayed model.

    python -m bench.device_pace --replay FILE --pace FILE --counts FILE --config FILE

Everything but the model is the draft service's own: the bus, retrieval, the thread that runs ahead, trees.
A draft token takes as many milliseconds as the file PACE says at the time, in which nothing is computed; a
chunk of a prompt takes that for every 8 tokens (static graphs of 8 rows, bound by their weights). What the
model says was computed ahead by the real draft model (bench/draft_trace.py): the three likeliest tokens
behind each likely path, so that the branch prior has three to choose among. Where the drafter looks for
something else it gets an even distribution; how often that was, and what rejections left of its trees, is
written to `--counts` at the end.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.draft_trace import Likely, Replay, read_replay
from bench.known_answers import KnownAnswers, followed, replacing_model
from bench.replayed_nodes import Ids, ReplayedNodes
from services.draft import app, cpu_model
from services.draft.cpu_model import CpuDrafter
from services.draft.sequences import DraftSequence
from shared.config.service import run_service
from shared.model.open import ModelFile, open_model
from shared.native import SequenceView

_EVEN = 64
_NOBODY_KNOWS: Likely = [(token, -math.log(_EVEN)) for token in range(_EVEN)]  # not worth drafting
ROWS_AT_ONCE = 8  # tokens of a prompt that take as long as one draft token
# Stands for the log probability of a token that is not among the likeliest. No two are equal, as in a model's
# own rows: whoever looks for the likeliest would have to sort them all.
_UNLIKELY, _STEP = -40.0, 1e-4


@dataclass
class Counts:
    """`predictions` asked for, and `misses` among them: what was not computed ahead."""

    predictions: int = 0
    misses: int = 0
    drafter: CpuDrafter | None = None

    def figures(self) -> dict[str, float]:
        survival = {} if self.drafter is None else self.drafter.survival.figures()
        return {"predictions": self.predictions, "misses": self.misses, **survival}


@dataclass(frozen=True)
class Device:
    """In the place of a Model."""

    n_vocab: int
    replay: Replay
    answers: KnownAnswers
    pace: Callable[[], float]  # seconds a draft token takes now
    counts: Counts
    isa: str = "simulation"
    threads: int = 0


class DeviceScratch(ReplayedNodes):
    """In the place of a Scratch: rows of logits that are log probabilities, after the device's time."""

    def __init__(self, model: Device, capacity: int, max_outputs: int, kv: str = "f16") -> None:
        super().__init__(capacity)
        self._device = model
        self._unlikely = (_UNLIKELY - _STEP * np.arange(model.n_vocab)).astype(np.float32)
        self._rows = np.tile(self._unlikely, (max_outputs, 1))
        self._written: list[list[int]] = [[] for _ in range(max_outputs)]
        self._outputs = 0

    def forward(
        self, views: Sequence[SequenceView], seq: Ids, tokens: Ids, parents: Ids, outputs: Ids
    ) -> int:
        ready = time.monotonic() + self._device.pace() * passes(len(tokens), len(outputs))
        first = self.append(views, seq, tokens, parents)
        for row, output in enumerate(outputs.tolist()):
            self._write(row, self._likely(first + output))
        self._outputs = len(outputs)
        time.sleep(max(0.0, ready - time.monotonic()))
        return first

    def logits(self) -> NDArray[np.float32]:
        return self._rows[: self._outputs]

    def _likely(self, slot: int) -> Likely:
        view = self.view(slot)
        place = self._device.answers.place(view, self.path(slot))
        likely = None if place is None else self._device.replay.after(place.item, place.i, place.path)
        self._device.counts.predictions += 1
        self._device.counts.misses += likely is None
        return _NOBODY_KNOWS if likely is None else likely

    def _write(self, row: int, likely: Likely) -> None:
        self._rows[row, self._written[row]] = self._unlikely[self._written[row]]
        self._written[row] = [token for token, _ in likely]
        self._rows[row, self._written[row]] = [logq for _, logq in likely]


class PaceFile:
    """Seconds a draft token takes, by a file with milliseconds that somebody else may replace."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = -1
        self._seconds = 0.0

    def __call__(self) -> float:
        written = self._path.stat().st_mtime_ns
        if written != self._written:
            self._written, self._seconds = written, float(self._path.read_text()) / 1000
        return self._seconds


def passes(tokens: int, outputs: int) -> int:
    """Passes of the device: one for each draft token, and for every ROWS_AT_ONCE other tokens."""
    return max(outputs, math.ceil(tokens / ROWS_AT_ONCE))


def simulate(replay: Replay, pace: Callable[[], float]) -> Counts:
    """Put the simulated device in the place of the draft model, in this process."""
    answers, counts = KnownAnswers(replay.trace), Counts()

    class CountedDrafter(CpuDrafter):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            counts.drafter = self

    def load(file: ModelFile) -> Device:
        return Device(file.info.spec["n_vocab"], replay, answers, pace, counts)

    vars(app)["_contends"] = lambda *_: False  # a device takes no core from the verifier
    vars(cpu_model)["Scratch"] = DeviceScratch
    vars(cpu_model)["DraftSequence"] = followed(DraftSequence, answers)
    vars(app)["open_model"] = replacing_model(open_model, load)
    vars(app)["CpuDrafter"] = CountedDrafter
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--replay", type=Path, required=True)
    parser.add_argument("--pace", type=Path, required=True, help="file with ms a draft token")
    parser.add_argument("--counts", type=Path, required=True)
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    counts = simulate(read_replay(options.replay), PaceFile(options.pace))
    try:
        run_service("draft", app.main)
    finally:
        options.counts.write_text(json.dumps(counts.figures()), encoding="utf-8")


if __name__ == "__main__":
    main()
