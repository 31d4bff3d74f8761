"""One sequence that reads a plant's log for as long as one likes: does quality, time or memory change?

Three ways to read the same tokens: `sink` as the product does it (the profile's prompt stays visible, behind
it a window), `window` without the prompt kept (a plain sliding window), `full` attention for as long as it
fits. Perplexity is over the log's tokens only. A pass here computes the logits of all its 64 rows, a prefill
of the product only those of the last; scoring them is not in the times.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.plant_log import log_tokens
from bench.reader import CHUNK, Floats, Ids, Reader, alone, full_attention
from bench.series import MEMORY, Series, read_memory, summary, tenths
from services.context.sequence import Ring
from shared.config.errors import RinglineError
from shared.model.chat import render_chat
from shared.model.open import ModelFile
from shared.native import Model

DEMO = Path(__file__).parent.parent / "deploy" / "demo" / "ringline.toml"
LEAST_SAMPLES = 20
LEAST_TOKENS = 10 * CHUNK


class Scorer:
    """Sums of negative log likelihoods, in memory that is allocated once."""

    def __init__(self, n_vocab: int) -> None:
        self._work = np.empty((CHUNK, n_vocab), np.float32)

    def nll(self, logits: Floats, targets: Ids) -> float:
        """Of targets[i], predicted by logits[i]: [n, n_vocab], [n]."""
        n = len(targets)
        largest = logits.max(-1, keepdims=True)
        work = np.subtract(logits, largest, out=self._work[:n])
        chosen = work[np.arange(n), targets].astype(np.float64)
        np.exp(work, out=work)
        return float((np.log(work.sum(-1, dtype=np.float64)) - chosen).sum())


def chunks(length: int) -> Iterator[slice]:
    """All whole chunks that have a next token behind them."""
    return (slice(at, at + CHUNK) for at in range(0, length - CHUNK, CHUNK))


def read_log(reader: Reader, prompt: Ids, log: Ids, scorer: Scorer, every: int) -> Series:
    """Reads prompt and log; a sample is `every` chunks."""
    reader.prompt(prompt)
    series = Series(len(log) // CHUNK // every, every * CHUNK)
    outputs = np.arange(CHUNK, dtype=np.int32)
    nll = seconds = 0.0
    for number, chunk in enumerate(chunks(len(log)), start=1):
        seconds += reader.read(log[chunk], outputs)
        nll += scorer.nll(reader.logits(), log[chunk.start + 1 : chunk.stop + 1])
        if number % every == 0:
            series.add(nll / series.tokens, seconds, read_memory())
            nll = seconds = 0.0
    return series


def demo_prompt(file: ModelFile) -> Ids:
    """The prefix of the demonstration's English profile."""
    text = DEMO.read_text(encoding="utf-8")
    profiles = tomllib.loads(text[text.index("[[profiles]]") :])[
        "profiles"
    ]  # what is before has gaps to fill
    system = next(profile["system"] for profile in profiles if profile["language"] == "en")
    return np.array(render_chat(file.info, file.tokenizer(), system, "").prefix, np.int32)


def evicts_at(file: ModelFile, options: argparse.Namespace) -> int:
    """Log tokens read when a window without a sink no longer shows the prompt's first token."""
    return int(options.window - len(demo_prompt(file)))


def rings(prompt: int, options: argparse.Namespace) -> dict[str, tuple[Ring, int]]:
    """The ways of reading, each with the log tokens it reads."""
    plain, full = min(options.plain, options.tokens), min(options.full, options.tokens)
    return {
        "sink": (Ring.of(prompt, options.window, CHUNK), options.tokens),
        "window": (Ring.of(0, options.window, CHUNK), plain),
        "full": (full_attention(prompt + full + CHUNK), full),
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=200_000, help="endless: tokens of log to read")
    parser.add_argument("--plain", type=int, default=200_000, help="endless: tokens for the window alone")
    parser.add_argument("--full", type=int, default=8192, help="endless: tokens for full attention")
    parser.add_argument("--window", type=int, default=1024, help="endless: W, visible behind the sink")
    parser.add_argument("--seed", type=int, default=1, help="endless: of the log")


def check_options(options: argparse.Namespace) -> None:
    if min(options.tokens, options.plain, options.full) < LEAST_TOKENS:
        raise RinglineError(
            f"--tokens, --plain and --full must be {LEAST_TOKENS} or more: ten parts of a chunk"
        )
    if not 64 <= options.window <= 32_768:
        raise RinglineError("--window must be between 64 and 32768, as in a profile")
    if not MEMORY.exists():
        raise RinglineError(f"there is no {MEMORY}: run this on Linux, from 5.4 on")


def run(file: ModelFile, model: Model, options: argparse.Namespace) -> dict[str, Series]:
    prompt = demo_prompt(file)
    log = log_tokens(file.tokenizer().encode, options.tokens + 1, options.seed)
    scorer = Scorer(model.n_vocab)
    result = {}
    ways = rings(len(prompt), options)
    shortest = min(tokens for _, tokens in ways.values())
    every = max(1, shortest // CHUNK // LEAST_SAMPLES)  # the same for all, so that their noise is alike
    for name, (ring, tokens) in ways.items():
        reader = alone(model, ring, len(prompt) + tokens)
        result[name] = read_log(reader, prompt, log[: tokens + 1], scorer, every)
    return result


def report(series: dict[str, Series]) -> dict[str, Any]:
    return {
        name: {"tenths": [asdict(part) for part in tenths(one)], **summary(one)}
        for name, one in series.items()
    }


def table(found: dict[str, Any]) -> str:
    rows = ["reads        tokens  perplexity  ms/token  PSS MB"]
    for name, one in found.items():
        rows += [
            f"{name:8} {part['end']:>10} {part['ppl']:11.3f} "
            f"{part['ms_per_token']:9.3f} {part['pss_mb']:7.1f}"
            for part in one["tenths"]
        ]
        rows.append(
            f"{name}: last tenth to second: perplexity {one['ppl_last_to_second']:.3f}, "
            f"time {one['time_last_to_second']:.3f}; MB per 100,000 tokens: "
            f"PSS {one['pss_mb_per_100k_tokens']:+.3f}, RSS {one['rss_mb_per_100k_tokens']:+.3f}, "
            f"anonymous {one['anon_mb_per_100k_tokens']:+.3f}"
        )
    return "\n".join(rows)
