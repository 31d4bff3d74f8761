"""Fits the weights of the evidence that retrieval drafts are judged by (services.draft.plant.WEIGHTS).

    python -m bench.evidence

Logistic regression over every candidate that retrieval has at every token of the known answers: of the alarms
that are the past of their workload, and of every second question of the others. The plants draft with the
weights there are, so the command is to be repeated until they do not change any more: evidence depends on
them only through the share of right drafts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.command import Report, model_options, print_report
from bench.retrieval import HISTORY, opened, sink_of
from bench.traces import Traced, trace_of
from bench.workloads import NAMES, load_workload
from services.draft.history import History
from services.draft.plant import WEIGHTS, Plant
from services.draft.retrieval import Retrieval
from shared.config.settings import Paths
from shared.model.open import open_model

_RIDGE = 1e-3  # for each candidate
_STEPS = 30  # of Newton's method

Example = tuple[list[float], bool]  # evidence, and whether the candidate was right


def main() -> int:
    parser = model_options("bench.evidence", __doc__, model="qwen2.5-coder-1.5b")
    return print_report("bench.evidence", parser.parse_args(), _run, _table)


def _run(options: argparse.Namespace) -> Report:
    paths = Paths(data=options.data)
    file = open_model(options.model, paths)
    examples: list[Example] = []
    for name in NAMES:
        workload = load_workload(name, file)
        trace = trace_of(workload, file, paths, options.threads)
        plant = Plant(History(HISTORY))
        for number, item in enumerate(trace.items):
            found = list(candidates(item, sink_of(item, workload), plant))
            if number < trace.past or (trace.past == 0 and number % 2 == 0):
                examples += found
    evidence = np.array([values for values, _ in examples])
    right = np.array([hit for _, hit in examples], np.float64)
    return {"examples": len(examples), "weights": fit(evidence, right).tolist(), "now": list(WEIGHTS)}


def candidates(item: Traced, sink: int, plant: Plant) -> Iterator[Example]:
    """Everything that could have been drafted, token by token; the plant knows the answer afterwards."""
    source = Retrieval(opened(item, sink), plant)
    for token in item.answer:
        source.draft()
        yield from ((evidence, candidate == token) for candidate, evidence in source.candidates())
        source.advance([token])
    source.finished()


def fit(evidence: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights [k] of evidence [n, k] under which the logistic function of their sum predicts `right` [n]."""
    n, k = evidence.shape
    weights = np.zeros(k)
    for _ in range(_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(evidence @ weights, -30.0, 30.0)))
        slope = evidence.T @ (right - p) - _RIDGE * n * weights
        curvature = (evidence * (p * (1.0 - p))[:, None]).T @ evidence + _RIDGE * n * np.eye(k)
        weights = weights + np.linalg.solve(curvature, slope)
    return weights


def _table(report: Report) -> str:
    rows = zip(report["weights"], report["now"], strict=True)
    return "\n".join(
        [f"{report['examples']} candidates: fitted, now", *(f"  {new:6.2f} {now:6.2f}" for new, now in rows)]
    )


if __name__ == "__main__":
    raise SystemExit(main())
