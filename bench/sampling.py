"""What choosing a token takes: the warpers and the draw, on rows of a model's own logits.

    python -m bench.sampling --model qwen2.5-coder-1.5b

Each row is what follows one more token of a text, as the verifier has it after a pass; `match` is one warp
and one draw for each visited row. Beside it the argmax that a greedy answer takes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from bench.command import Report, model_options, print_report
from bench.private_pool import private_view
from shared.bus.messages.requests import Sampling
from shared.config.settings import Paths
from shared.model.open import ModelFile, open_model
from shared.native import Scratch
from shared.sampling import History, uniform, warp

TEXT = (
    "The alarm says that pump P-101 has stopped on overcurrent. The most likely cause is a blocked impeller; "
    "check the strainer first, then the coupling. 主轴温度过高，先检查冷却液流量，再检查风扇和轴承。"
)
SAMPLINGS = {
    "temperature": Sampling(temperature=0.8),
    "temperature, top_p": Sampling(temperature=0.8, top_p=0.95),
    "temperature, top_k, top_p": Sampling(temperature=0.7, top_k=20, top_p=0.8),
    "every warper": Sampling(temperature=0.8, top_k=40, min_p=0.02, top_p=0.95, repetition_penalty=1.1),
    "repetition penalty alone": Sampling(repetition_penalty=1.1),
}
WINDOW, ROUNDS = 1024, 20


def rows_of(file: ModelFile, threads: int, isa: str) -> tuple[list[int], NDArray[np.float32]]:
    """TEXT's tokens, and the logits behind each of them, float32 [n, n_vocab]."""
    tokens = file.tokenizer().encode(TEXT)
    n, model = len(tokens), file.load(threads, isa)
    view = private_view(model, n)
    scratch = Scratch(model, n, n)
    chain, every = np.arange(-1, n - 1, dtype=np.int32), np.arange(n, dtype=np.int32)
    scratch.forward([view], np.zeros(n, np.int32), np.array(tokens, np.int32), chain, every)
    return tokens, scratch.logits().copy()


def timed(rows: NDArray[np.float32], choose: Callable[[NDArray[np.float32], int], int]) -> dict[str, float]:
    """Milliseconds a row: the median and the 95th percentile over ROUNDS rounds of all rows."""
    taken = []
    for _ in range(ROUNDS):
        for position, row in enumerate(rows):
            began = time.perf_counter()
            choose(row, position)
            taken.append((time.perf_counter() - began) * 1000)
    return {"median_ms": median(taken), "p95_ms": float(np.percentile(taken, 95))}


def run(options: argparse.Namespace) -> Report:
    file = open_model(options.model, Paths(data=options.data))
    tokens, rows = rows_of(file, options.threads, options.isa)
    found = {"greedy (NumPy)": timed(rows, lambda row, _: int(row.argmax()))}
    for name, sampling in SAMPLINGS.items():
        history = History(tokens * (WINDOW // len(tokens) + 1), WINDOW, sampling).behind(())

        def choose(
            row: NDArray[np.float32],
            position: int,
            sampling: Sampling = sampling,
            history: NDArray[np.int64] = history,
        ) -> int:
            return warp(row, history, sampling).draw(uniform(sampling.seed, position))

        found[name] = timed(rows, choose)
    return {"model": file.info.name, "vocabulary": rows.shape[1], "rows": len(rows), "choosing": found}


def table(report: Report) -> str:
    lines = [f"{report['model']}, {report['vocabulary']} tokens, {report['rows']} rows: ms a row (95 %)"]
    for name, took in report["choosing"].items():
        lines.append(f"{name:28} {took['median_ms']:6.3f} ({took['p95_ms']:.3f})")
    return "\n".join(lines)


def main() -> int:
    options = model_options("bench.sampling", __doc__).parse_args()
    return print_report("bench.sampling", options, run, table)


if __name__ == "__main__":
    sys.exit(main())
