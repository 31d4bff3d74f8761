"""Speed of the engine by batch size, against this machine's memory bandwidth and against llama.cpp.

    python -m bench.engine --model NAME --rows 1,2,8 [--threads N] [--context N] [--peer] [--hog] [--json]

One row is a decode step as the verifier runs it (pass, commit, re-root); more rows are one batch with the
logits of the last row, as llama-bench's ppN. Every row sees `--context` positions before it (default: none).
With `--peer` both sides alternate, round by round; a ratio above 1 means that this engine is faster. Rates
are medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.command import model_options, print_report
from bench.peer import Peer, PeerMissing
from bench.private_pool import private_pool
from shared.config.errors import RinglineError
from shared.config.settings import Paths
from shared.model.catalogue import known
from shared.model.open import ModelFile, open_model
from shared.native import BLOCK_TOKENS, Model, Scratch, SequenceView, read_bandwidth

DECODE_STEPS = 16  # of a round
PAUSE_S = 0.05  # lets the other side's threads fall asleep
STREAM_BYTES = 1 << 29


class Engine:
    """A model with one sequence, and passes over it."""

    def __init__(self, file: ModelFile, threads: int, isa: str, most_rows: int, context: int) -> None:
        self.model: Model = file.load(threads, isa)
        self._context = context
        window = -(-(context + most_rows + DECODE_STEPS) // BLOCK_TOKENS) * BLOCK_TOKENS
        slots = window + BLOCK_TOKENS
        blocks = slots // BLOCK_TOKENS
        self._view = SequenceView(private_pool(self.model, blocks), 0, 0, slots, window)
        self._view.set_blocks(0, np.arange(blocks, dtype=np.int32))
        self._scratch = Scratch(self.model, max(most_rows, 1), 1)

    def seconds(self, rows: int, passes: int) -> list[float]:
        """Durations of `passes` batches of `rows` tokens; with one row, of consecutive decode steps."""
        self._view.length = self._context
        return [self._decode() if rows == 1 else self._batch(rows) for _ in range(passes)]

    def _decode(self) -> float:
        before = time.perf_counter()
        self._pass(1)
        path = np.zeros(1, np.int32)
        self._scratch.commit(self._view, path)
        self._scratch.reroot(self._view, path)
        return time.perf_counter() - before

    def _batch(self, rows: int) -> float:
        before = time.perf_counter()
        self._pass(rows)
        self._scratch.drop(self._view)
        return time.perf_counter() - before

    def _pass(self, rows: int) -> None:
        tokens = (1000 + 7 * np.arange(rows, dtype=np.int32)) % self.model.n_vocab
        parents = np.arange(-1, rows - 1, dtype=np.int32)
        outputs = np.array([rows - 1], np.int32)
        self._scratch.forward([self._view], np.zeros(rows, np.int32), tokens, parents, outputs)


def main() -> int:
    return print_report("bench.engine", _options(), _run, _table)


def _options() -> argparse.Namespace:
    parser = model_options("bench.engine", __doc__)
    parser.add_argument("--rows", default="1,2,4,8,12,16,32,64,512", help="batch sizes")
    parser.add_argument("--context", type=int, default=0, help="positions that every row sees")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="store_true", help="measure llama-cpp-python too")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has llama-cpp-python")
    parser.add_argument("--hog", action="store_true", help="decode once more beside one busy process")
    options = parser.parse_args()
    options.rows = sorted({int(n) for n in options.rows.split(",")})
    if not 1 <= options.rows[0] <= options.rows[-1] <= 512:
        parser.error("--rows must be between 1 and 512")
    if not 0 <= options.context <= 32768:
        parser.error("--context must be between 0 and 32768")
    if options.context and options.peer:
        parser.error("--peer measures without a context")
    return options


def _run(options: argparse.Namespace) -> dict[str, Any]:
    file = open_model(options.model, Paths(data=options.data))
    engine = Engine(file, options.threads, options.isa, options.rows[-1], options.context)
    peer = _start_peer(options) if options.peer else None
    try:
        return _measure(options, file, engine, peer)
    finally:
        if peer is not None:
            peer.close()


def _start_peer(options: argparse.Namespace) -> Peer:
    try:
        return Peer(options.peer_python, _gguf(options), options.threads)
    except PeerMissing as error:
        raise RinglineError(str(error)) from None


def _measure(
    options: argparse.Namespace, file: ModelFile, engine: Engine, peer: Peer | None
) -> dict[str, Any]:
    stream = np.ones(STREAM_BYTES // 4, np.float32)
    bandwidths: list[float] = []
    own: dict[int, list[float]] = {n: [] for n in options.rows}
    others: dict[int, list[float]] = {n: [] for n in options.rows}
    for round_ in range(options.rounds + 1):
        bandwidth = read_bandwidth(stream, options.threads)
        if round_ > 0:
            bandwidths.append(bandwidth)
        for n in options.rows:
            seconds = _round(engine, n)
            other = _round(peer, n) if peer is not None else 0.0
            if round_ > 0:  # the first one warms up
                own[n].append(seconds)
                others[n].append(other)
    report: dict[str, Any] = {
        "model": file.info.name,
        "isa": engine.model.isa,
        "threads": options.threads,
        "context": options.context,
        "weight_bytes": engine.model.weight_bytes,
        "read_gb_s": statistics.median(bandwidths) / 1e9,
        "rows": {str(n): _rates(file, engine, n, own[n], bandwidths) for n in options.rows},
    }
    if peer is not None:
        report["peer"] = {"name": "llama-cpp-python", "version": peer.version} | {
            str(n): {"tokens_s": n / statistics.median(others[n])} for n in options.rows
        }
        ratios = {n: [b / a for a, b in zip(own[n], others[n], strict=True)] for n in options.rows}
        report["ratio_to_peer"] = {str(n): statistics.median(ratios[n]) for n in options.rows}
        report["ratio_spread"] = {str(n): [min(ratios[n]), max(ratios[n])] for n in options.rows}
    if options.hog:
        report["hog"] = _beside_a_hog(options, engine, peer)
    return report


def _round(side: Engine | Peer | None, rows: int) -> float:
    """Seconds of one batch, the median of this round's."""
    assert side is not None
    time.sleep(PAUSE_S)
    return statistics.median(side.seconds(rows, DECODE_STEPS if rows == 1 else 3 if rows <= 64 else 1))


def _rates(
    file: ModelFile, engine: Engine, rows: int, seconds: list[float], bandwidths: list[float]
) -> dict[str, float]:
    """Medians over the rounds; the share compares a round with the stream read right before it."""
    median = statistics.median(seconds)
    weight_bytes = engine.model.weight_bytes
    shares = [weight_bytes / s / stream for s, stream in zip(seconds, bandwidths, strict=True)]
    return {
        "ms": median * 1e3,
        "tokens_s": rows / median,
        "weights_gb_s": weight_bytes / median / 1e9,
        "gmac_s": _macs(file, rows) / median / 1e9,
        "share_of_bandwidth": statistics.median(shares),
    }


def _macs(file: ModelFile, rows: int) -> int:
    """Multiply-adds of the matrix products of a batch with one row of logits."""
    matrices = [(name, r * c) for name, _, r, c, _, _ in file.tensors if r > 1]
    head = next((cells for name, cells in matrices if name == "output.weight"), 0)
    embedding = next(cells for name, cells in matrices if name == "token_embd.weight")
    layers = sum(cells for name, cells in matrices if name.startswith("blk."))
    return rows * layers + (head or embedding)


def _beside_a_hog(options: argparse.Namespace, engine: Engine, peer: Peer | None) -> dict[str, float]:
    """Decode speed beside one busy process, as a share of the undisturbed speed right before.

    Round by round, each with a busy process of its own: the machine's own speed changes within minutes, and
    where the system puts the busy process is another draw of the same lot.
    """
    sides: dict[str, Engine | Peer] = {"own": engine} | ({"peer": peer} if peer is not None else {})
    alone: dict[str, list[float]] = {name: [] for name in sides}
    beside: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, side in sides.items():
            alone[name].append(_round_total(side))
            with _hog():
                beside[name].append(_round_total(side))
    result: dict[str, float] = {}
    for name in sides:
        kept = [a / b for a, b in zip(alone[name], beside[name], strict=True)]
        result[f"{name}_tokens_s"] = DECODE_STEPS / statistics.median(beside[name])
        result[f"{name}_kept"] = statistics.median(kept)
        result[f"{name}_kept_least"] = min(kept)
    return result


def _round_total(side: Engine | Peer) -> float:
    """Seconds of one round of decode steps: under load the sum counts, not the typical step."""
    return sum(side.seconds(1, DECODE_STEPS))


@contextlib.contextmanager
def _hog() -> Iterator[None]:
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        yield
    finally:
        hog.kill()
        hog.wait()


def _gguf(options: argparse.Namespace) -> Path:
    entry = known(options.model)
    return Paths(data=options.data).models / entry.filename if entry is not None else Path(options.model)


def _table(report: dict[str, Any]) -> str:
    compared = "ratio_to_peer" in report
    lines = [
        f"{report['model']}, {report['isa']}, {report['threads']} threads; "
        f"memory reads {report['read_gb_s']:.1f} GB/s",
        " rows       ms  tokens/s     GB/s  of memory   GMAC/s" + ("  x llama.cpp" if compared else ""),
    ]
    for rows, rate in report["rows"].items():
        ratio = ""
        if compared:
            low, high = report["ratio_spread"][rows]
            ratio = f"  {report['ratio_to_peer'][rows]:5.2f} ({low:.2f} to {high:.2f})"
        lines.append(
            f"{rows:>5} {rate['ms']:8.2f} {rate['tokens_s']:9.1f} {rate['weights_gb_s']:8.1f} "
            f"{rate['share_of_bandwidth']:10.2f} {rate['gmac_s']:8.1f}{ratio}"
        )
    for key, value in report.get("hog", {}).items():
        lines.append(f"beside a busy process: {key} {value:.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
