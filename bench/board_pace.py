"""SIMULATION of a target at a board's pace: the verifier service with a replayed model.

    python -m bench.board_pace --trace FILE --ms MS --curve 1,1.1,1.3 --config FILE

Everything but the model is the verifier's own. A pass of n nodes takes MS times the n-th number of the curve,
in which nothing is computed; beyond the curve every node costs what its last one does on the average. The
model's choices are the answers of the trace (bench/traces.py). With 0 ms it is no projection, only a quick
way to let a plant have a past.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.known_answers import KnownAnswers, followed, replacing_model
from bench.replayed_nodes import Ids, ReplayedNodes
from bench.traces import Trace, read_cached
from bench.watched_verifier import watch
from services.verifier import app, engine, loop
from services.verifier.sequences import Sequence
from shared.config.service import run_service
from shared.model.open import ModelFile, open_model
from shared.native import SequenceView

# RK3588, by docs/performance.md: an estimate. v(1 … 16), and the time of a token at 17 tokens a second.
BOARD_TOKEN_MS = 58.8
BOARD_CURVES = {
    "neoverse-n1": "1,1,1,1,1.05,1.21,1.40,1.67,1.92,2.08,2.25,2.42,2.61,2.80,3.07,3.35",
    "cortex-a76": "1,1,1,1.19,1.50,1.76,1.97,2.26,2.69,3.00,3.25,3.51,3.73,3.94,4.23,4.52",
}


@dataclass(frozen=True)
class Target:
    """In the place of a Model. `stop`: what follows an answer that ended by itself."""

    n_vocab: int
    stop: int
    answers: KnownAnswers
    unit_s: float
    curve: tuple[float, ...]
    isa: str = "simulation"
    threads: int = 0

    def seconds(self, rows: int) -> float:
        last = len(self.curve)
        return self.unit_s * (self.curve[rows - 1] if rows <= last else self.curve[-1] / last * rows)


class TargetScratch(ReplayedNodes):
    """In the place of a Scratch: the known answers' tokens, after the board's time."""

    def __init__(self, model: Target, capacity: int, max_outputs: int, kv: str = "f16") -> None:
        super().__init__(capacity)
        self._target = model
        self._choices = np.zeros(max_outputs, np.int32)
        self._outputs = 0

    def forward(self, views: Seq[SequenceView], seq: Ids, tokens: Ids, parents: Ids, outputs: Ids) -> int:
        ready = time.monotonic() + self._target.seconds(len(tokens))
        first = self.append(views, seq, tokens, parents)
        for row, output in enumerate(outputs.tolist()):
            self._choices[row] = self._choice(first + output)
        self._outputs = len(outputs)
        time.sleep(max(0.0, ready - time.monotonic()))
        return first

    def argmax(self) -> Ids:
        return self._choices[: self._outputs]

    def _choice(self, slot: int) -> int:
        """Behind a wrong draft it does not matter: nothing there is accepted."""
        place = self._target.answers.place(self.view(slot), self.path(slot))
        if place is None:
            return self._target.stop
        truth, behind = place.item.answer, place.i + len(place.path)
        return truth[behind] if behind < len(truth) else self._target.stop


def simulate(trace: Trace, unit_s: float, curve: tuple[float, ...]) -> None:
    """Put the simulated target in the place of the model, in this process."""
    answers = KnownAnswers(trace)

    def load(file: ModelFile) -> Target:
        return Target(file.info.spec["n_vocab"], file.info.stop_tokens[0], answers, unit_s, curve)

    vars(engine)["Scratch"] = TargetScratch
    vars(loop)["Sequence"] = followed(Sequence, answers)
    vars(app)["open_model"] = replacing_model(open_model, load)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--ms", type=float, required=True)
    parser.add_argument("--curve", default="1")
    parser.add_argument("--passes", type=Path)
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    curve = tuple(float(part) for part in options.curve.split(","))
    simulate(read_cached(options.trace, Trace), options.ms / 1000, curve)
    if options.passes is None:
        run_service("verifier", app.main)
    with options.passes.open("a", encoding="utf-8") as passes:
        watch(passes)
        run_service("verifier", app.main)


if __name__ == "__main__":
    main()
