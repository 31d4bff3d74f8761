"""Quality of the engine's predictions: perplexity of a text, and divergence from a float32 reference.

    python -m bench.quality --model NAME|PATH --text FILE [--kv int8] [--golden DIR] [--chunks N] [--json]

Perplexity follows llama-perplexity: consecutive chunks of 512 tokens, each from an empty context and without
BOS; the predictions of its tokens 257 to 511 are scored. With `--golden`, the mean KL(reference || engine) at
the last positions of the prompts in DIR/logits_*.npz of this model (tests/data/README.md), as a lower bound:
over the reference's top tokens and one bucket for all others.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from bench.command import model_options, print_report
from bench.private_pool import private_view
from shared.config.errors import RinglineError
from shared.config.settings import KvFormat, Paths
from shared.model.open import open_model
from shared.native import Model, Scratch

CHUNK = 512
SCORED_FROM = 257  # first scored token of a chunk
PASS = 64  # tokens of one pass
GOLDEN_NAMES = {"smollm2-135m": "smol", "qwen2.5-coder-0.5b": "qwen05", "qwen2.5-coder-1.5b": "qwen15"}

Ids = NDArray[np.int32]
Doubles = NDArray[np.float64]


class Predictor:
    """Predictions of a model over whole texts of at most `most` tokens, each from an empty context."""

    def __init__(self, model: Model, most: int, kv: KvFormat = "f16") -> None:
        self._view = private_view(model, most, kv)
        self._scratch = Scratch(model, PASS, PASS, kv)

    def last(self, tokens: Ids, first: int) -> Doubles:
        """Log probabilities of what follows tokens[first], tokens[first + 1] ...: [n - first, n_vocab]."""
        self._view.length = 0
        passes = [
            self._pass(tokens[at : at + PASS], max(first - at, 0)) for at in range(0, len(tokens), PASS)
        ]
        return np.concatenate(passes)

    def _pass(self, tokens: Ids, first: int) -> Doubles:
        n = len(tokens)
        outputs = np.arange(min(first, n), n, dtype=np.int32)
        parents = np.arange(-1, n - 1, dtype=np.int32)
        self._scratch.forward([self._view], np.zeros(n, np.int32), tokens, parents, outputs)
        logits = self._scratch.logits().astype(np.float64)
        path = np.arange(n, dtype=np.int32)
        self._scratch.commit(self._view, path)
        self._scratch.reroot(self._view, path)
        return log_softmax(logits)


def log_softmax(logits: Doubles) -> Doubles:
    """Over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True, initial=-np.inf)
    result: Doubles = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def chunk_nll(predictor: Predictor, chunk: Ids) -> float:
    """Mean negative log likelihood of the scored tokens of one chunk."""
    predicted = predictor.last(chunk[:-1], SCORED_FROM - 1)
    return float(-np.take_along_axis(predicted, chunk[SCORED_FROM:, None].astype(np.int64), -1).mean())


def cumulative_perplexity(nll: list[float]) -> list[float]:
    """Perplexity after each chunk."""
    return [math.exp(sum(nll[: n + 1]) / (n + 1)) for n in range(len(nll))]


def divergence(top_ids: Ids, top: Doubles, predicted: Doubles) -> Doubles:
    """KL(reference || engine) of each position over top_ids [n, k] and one bucket for the rest.

    `top` [n, k] and `predicted` [n, n_vocab] are log probabilities. Merging tokens into a bucket can only
    lower a divergence (log sum inequality).
    """
    own = np.take_along_axis(predicted, top_ids.astype(np.int64), -1)
    rest = np.clip(1.0 - np.exp(top).sum(-1), 1e-12, None)
    own_rest = np.clip(1.0 - np.exp(own).sum(-1), 1e-12, None)
    result: Doubles = (np.exp(top) * (top - own)).sum(-1) + rest * np.log(rest / own_rest)
    return result


def perplexity(model: Model, tokens: Ids, most_chunks: int, kv: KvFormat) -> dict[str, Any]:
    """Of the first `most_chunks` whole chunks; 0: all. RinglineError when there is none."""
    chunks = len(tokens) // CHUNK
    if chunks == 0:
        raise RinglineError(f"the text has {len(tokens)} tokens; perplexity needs at least {CHUNK}")
    chunks = min(chunks, most_chunks or chunks)
    predictor = Predictor(model, CHUNK, kv)
    nll = [chunk_nll(predictor, tokens[c * CHUNK : (c + 1) * CHUNK]) for c in range(chunks)]
    cumulative = cumulative_perplexity(nll)
    return {"ppl": cumulative[-1], "chunks": chunks, "cumulative_ppl": cumulative, "chunk_mean_nll": nll}


def divergences(model: Model, files: list[Path], kv: KvFormat) -> dict[str, Any]:
    """Mean KL of every reference file, and over all of them."""
    means = {}
    for path in files:
        with np.load(path, allow_pickle=False) as golden:
            tokens, positions = golden["prompt_ids"].astype(np.int32), golden["positions"]
            top = golden["top_logits"].astype(np.float64) - golden["logsumexp"][:, None]
            predicted = Predictor(model, len(tokens), kv).last(tokens, len(tokens) - len(positions))
            means[path.stem] = float(divergence(golden["top_ids"], top, predicted).mean())
    return {"kl_mean": sum(means.values()) / len(means), "kl": means}


def main() -> int:
    return print_report("bench.quality", _options(), _run, _table)


def _options() -> argparse.Namespace:
    parser = model_options("bench.quality", __doc__)
    parser.add_argument("--text", type=Path, required=True, help="UTF-8 text")
    parser.add_argument("--kv", choices=get_args(KvFormat), default="f16", help="format of keys and values")
    parser.add_argument("--golden", type=Path, help="directory of logits_*.npz")
    parser.add_argument("--chunks", type=int, default=0, help="score only the first N chunks")
    options = parser.parse_args()
    if options.chunks < 0:
        parser.error("--chunks must not be negative")
    return options


def _run(options: argparse.Namespace) -> dict[str, Any]:
    text = _read(options.text)
    files = _golden_files(options.golden, options.model) if options.golden is not None else []
    file = open_model(options.model, Paths(data=options.data))
    model = file.load(options.threads, options.isa)
    tokens = np.array(file.tokenizer().encode(text), np.int32)
    report = {"model": file.info.name, "isa": model.isa, "kv": options.kv}
    report |= perplexity(model, tokens, options.chunks, options.kv)
    return report | (divergences(model, files, options.kv) if files else {})


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RinglineError(f"cannot read the text {path}: {error}") from error


def _golden_files(directory: Path, model: str) -> list[Path]:
    files = sorted(directory.glob(f"logits_{GOLDEN_NAMES.get(model, model)}_*.npz"))
    if not files:
        raise RinglineError(f"no logits_*.npz of {model} in {directory}")
    return files


def _table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['model']}, {report['isa']}, K/V in {report['kv']}: perplexity {report['ppl']:.4f} "
        f"over {report['chunks']} chunks"
    ]
    if "kl" in report:
        lines += [f"{name}: KL {value:.5f}" for name, value in report["kl"].items()]
        lines.append(f"mean KL to float32 {report['kl_mean']:.5f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
