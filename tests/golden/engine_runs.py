"""Running the engine over a known token sequence: what the golden tests have in common."""

from __future__ import annotations

import itertools
import mmap
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.config.settings import KvFormat, Paths
from shared.model.open import ModelFile, open_model
from shared.native import BLOCK_TOKENS, KvPool, Model, Scratch, SequenceView

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
PROMPTS = ("a_en_alarm", "a_en_code", "a_zh_log", "a_zh_prose")
CATALOGUE_NAMES = {"smol": "smollm2-135m", "qwen05": "qwen2.5-coder-0.5b", "qwen15": "qwen2.5-coder-1.5b"}


def open_test_model(short: str) -> ModelFile:
    return open_model(CATALOGUE_NAMES[short], Paths(data=ROOT / ".ringline"))


def rounded_up(slots: int) -> int:
    return -(-slots // BLOCK_TOKENS) * BLOCK_TOKENS


class Run:
    """One sequence in a pool that is just large enough, its blocks in random order, and a scratch.

    `ring` is rounded up to whole blocks; `capacity` and `max_outputs` are the scratch's.
    """

    def __init__(
        self,
        model: Model,
        sink: int,
        ring: int,
        window: int,
        capacity: int = 64,
        max_outputs: int = 64,
        kv: KvFormat = "f16",
    ) -> None:
        slots = rounded_up(sink) + rounded_up(ring)
        blocks = list(range(slots // BLOCK_TOKENS))
        random.Random(slots).shuffle(blocks)
        planes = [model.plane]
        memory = mmap.mmap(-1, len(blocks) * KvPool.block_bytes(planes, kv))
        self.pool = KvPool(memory, len(blocks), planes, kv)
        self.view = SequenceView(self.pool, 0, sink, rounded_up(ring), window)
        self.view.set_blocks(0, np.array(blocks, np.int32))
        self.scratch = Scratch(model, capacity, max_outputs, kv)

    def chunk(self, tokens: Ids, outputs: Ids) -> Floats:
        """A chain on the committed context, committed; the logits of `outputs` (indices into the chunk)."""
        n = len(tokens)
        chain = np.arange(-1, n - 1, dtype=np.int32)
        self.scratch.forward([self.view], np.zeros(n, np.int32), tokens, chain, outputs)
        logits = self.scratch.logits().copy()
        path = np.arange(n, dtype=np.int32)
        self.scratch.commit(self.view, path)
        self.scratch.reroot(self.view, path)
        return logits


def cut(n: int, sizes: Iterable[int]) -> list[slice]:
    """[0, n) in pieces of these sizes, taken in turn."""
    pieces: list[slice] = []
    start = 0
    for size in itertools.cycle(sizes):
        if start >= n:
            return pieces
        pieces.append(slice(start, min(start + size, n)))
        start = pieces[-1].stop
    return pieces


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(-1, keepdims=True))
    return wide


def kl_lower_bound(
    top_ids: Ids, top_logits: Floats, logsumexp: NDArray[np.float64], logits: Floats
) -> NDArray[np.float64]:
    """KL(reference || engine) of each position, over the reference's top tokens and one bucket for the rest.

    Merging the other tokens into a bucket can only lower a divergence (log sum inequality), so this bounds
    the full KL from below; with top-50 the bucket holds little.
    """
    reference = top_logits.astype(np.float64) - logsumexp[:, None]
    engine = np.take_along_axis(log_softmax(logits), top_ids.astype(np.int64), -1)
    rest = np.clip(1.0 - np.exp(reference).sum(-1), 1e-12, None)
    rest_engine = np.clip(1.0 - np.exp(engine).sum(-1), 1e-12, None)
    top: NDArray[np.float64] = (np.exp(reference) * (reference - engine)).sum(-1)
    bound: NDArray[np.float64] = top + rest * np.log(rest / rest_engine)
    return bound
