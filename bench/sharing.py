"""What a common prefix saves: blocks by context's own bookkeeping, and time to first token by the engine.

How much of the memory is saved depends on how much each sequence has of its own. `ALARM` and `ANSWER` are the
plant's: the means over the 20 alarms of deploy/demo with Qwen2.5-Coder-1.5B, greedy, in its own tokens. Their
prompts have 54.4 tokens behind the prefix (30 to 81), their answers 82.5 (59 to 140, the limit). `OWN_TOKENS`
shows the same for sequences with less and with more. Nothing but the prefix is equal in two of them: whatever
else could be shared is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.private_pool import private_pool
from bench.reader import CHUNK, Ids, Reader
from services.context.app import build, describe
from services.context.models import Pair
from services.context.sequence import Ring
from services.context.sessions import Sessions
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Role
from shared.bus.messages.requests import RegisterProfile, Submit
from shared.bus.messages.sequences import Commit, SeqOpen
from shared.config.settings import Settings
from shared.kv import open_segment
from shared.model.open import ModelFile, ModelInfo
from shared.native import Model

PREFIX = 256
ALARM = 54  # prompt tokens behind the prefix
ANSWER = 82
OWN_TOKENS = (64, ALARM + ANSWER, 192, 256, 512)  # alarm and answer together
WINDOW = 1024
SEQUENCES = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15, help="sharing: pairs of first tokens")


def run(file: ModelFile, model: Model, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "sequences": SEQUENCES,
        "prefix": PREFIX,
        "alarm": ALARM,
        "blocks": [_blocks(file.info, own) for own in OWN_TOKENS],
        **first_tokens(model, options.rounds),
    }


def _blocks(info: ModelInfo, own: int) -> dict[str, float]:
    shared = blocks_used(info, profiles=1, answer=own - ALARM)
    apart = blocks_used(info, profiles=SEQUENCES, answer=own - ALARM)
    return {"own": own, "shared": shared, "apart": apart, "ratio": shared / apart}


def blocks_used(info: ModelInfo, profiles: int, answer: int = ANSWER) -> int:
    """Blocks in use when SEQUENCES answers lack one token, their prompts spread over that many profiles,
    whose prefixes differ from the first token on. That is the most they ever hold: what is reserved ahead
    ends with the answer. Context's own sessions decide it; nothing is computed."""
    settings = Settings.model_validate(
        {
            "models": {"target": info.name, "draft": None},
            "context": {"pool_mb": 1024, "max_sequences": SEQUENCES},
        }
    )
    spec, limits = describe(settings, Pair(info, None, ""))
    with tempfile.TemporaryDirectory(prefix="ringline-bench-") as directory:
        segment = open_segment(Path(directory) / "kv", spec)
        outbox: list[SeqOpen] = []

        def send(role: Role, message: Message) -> None:
            if role == "verifier" and isinstance(message, SeqOpen):
                outbox.append(message)

        sessions, _ = build(segment, limits, send)
        try:
            _answer_all(sessions, outbox, profiles, answer)
            return sessions.ledger.pool.total - sessions.ledger.pool.free
        finally:
            segment.close()


def _answer_all(sessions: Sessions, outbox: list[SeqOpen], profiles: int, answer: int) -> None:
    for number in range(profiles):
        prefix = _prefix(number)
        sessions.register(RegisterProfile(profile=f"p{number}", tokens=prefix, window=WINDOW))
        _compute(sessions, outbox.pop(), answer=0)
    for number in range(SEQUENCES):
        alarm = [1000 + 100 * number + i for i in range(ALARM)]
        profile = number % profiles
        sessions.submit(
            Submit(
                request_id=f"r{number}",
                profile=f"p{profile}",
                tokens=_prefix(profile) + alarm,
                max_tokens=answer,
                stop_tokens=[0],
            )
        )
        _compute(sessions, outbox.pop(), answer=answer - 2)


def _prefix(profile: int) -> list[int]:
    return [3000 + PREFIX * profile + i for i in range(PREFIX)]


def _compute(sessions: Sessions, opened: SeqOpen, answer: int) -> None:
    """Commits as a verifier sends them: known tokens in chunks, then `answer` passes of one token each."""
    at, epoch = opened.kv_len, opened.epoch
    while at < len(opened.tokens) + answer:
        written = max(1, min(CHUNK, len(opened.tokens) - at))
        known = at + written < len(opened.tokens) or not answer
        tokens = [] if known else [500]
        sessions.commit(Commit(seq=opened.seq, epoch=epoch, kv_len=at, written=written, tokens=tokens))
        at, epoch = at + written, epoch + 1


def first_tokens(model: Model, rounds: int) -> dict[str, float]:
    """Medians of the time to the first token with the prefix in the pool and without it, in turns."""
    ring = Ring.of(PREFIX, WINDOW, CHUNK)
    size = ring.table_size(PREFIX + ALARM)
    pool = private_pool(model, 2 * size)
    cold = Reader(model, ring, pool, range(size, 2 * size))
    warm = Reader(model, ring, pool, range(size))
    prompt = (1000 + 7 * np.arange(PREFIX + ALARM, dtype=np.int32)) % model.n_vocab
    warm.prompt(prompt)  # leaves the prefix in the first blocks
    seconds: dict[str, list[float]] = {"warm": [], "cold": []}
    for round_ in range(rounds + 1):
        times = {"warm": _first_token(warm, prompt, PREFIX), "cold": _first_token(cold, prompt, 0)}
        for side in seconds if round_ else ():  # the first round warms up
            seconds[side].append(times[side])
    ratios = [b / a for a, b in zip(seconds["warm"], seconds["cold"], strict=True)]
    return {
        "warm_ms": statistics.median(seconds["warm"]) * 1e3,
        "cold_ms": statistics.median(seconds["cold"]) * 1e3,
        "first_token_ratio": statistics.median(ratios),
        "first_token_ratio_low": min(ratios),
        "first_token_ratio_high": max(ratios),
    }


def _first_token(reader: Reader, prompt: Ids, known: int) -> float:
    started = time.perf_counter()
    reader.view.length = known
    reader.prompt(prompt[known:])
    return time.perf_counter() - started


def table(found: dict[str, Any]) -> str:
    rows = [
        f"{found['sequences']} sequences behind a prefix of {found['prefix']} tokens, "
        f"{found['alarm']} of each one's own tokens are the alarm",
        "own tokens  blocks  without sharing  ratio",
    ]
    rows += [
        f"{row['own']:10}  {row['shared']:6}  {row['apart']:15}  {row['ratio']:5.2f}"
        for row in found["blocks"]
    ]
    return "\n".join(rows) + (
        f"\nfirst token: {found['warm_ms']:.1f} ms behind a warm prefix, {found['cold_ms']:.1f} ms without, "
        f"ratio {found['first_token_ratio']:.2f} "
        f"({found['first_token_ratio_low']:.2f} to {found['first_token_ratio_high']:.2f})"
    )
