"""One sequence that reads tokens the way the verifier does: chunk by chunk, through a ring."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.private_pool import private_pool
from services.context.sequence import Ring
from shared.native import BLOCK_TOKENS, KvPool, Model, Scratch, SequenceView

CHUNK = 64  # verifier.prefill_chunk

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]


class Reader:
    """Reads through `ring` into the pool's blocks of `table`; shared ones at its front may be filled."""

    def __init__(self, model: Model, ring: Ring, pool: KvPool, table: Sequence[int]) -> None:
        self.view = SequenceView(pool, 0, ring.sink, ring.capacity, ring.window)
        self.view.set_blocks(0, np.array(table, np.int32))
        self._scratch = Scratch(model, CHUNK, CHUNK)
        self._slots = np.arange(CHUNK, dtype=np.int32)

    def read(self, tokens: Ids, outputs: Ids) -> float:
        """Seconds for at most CHUNK tokens; the logits of `outputs` (indices into them) are there then."""
        n = len(tokens)
        started = time.perf_counter()
        self._scratch.clear()
        self._scratch.forward([self.view], np.zeros(n, np.int32), tokens, self._slots[:n] - 1, outputs)
        self._scratch.commit(self.view, self._slots[:n])
        return time.perf_counter() - started

    def prompt(self, tokens: Ids) -> int:
        """Reads all tokens; the most likely next one."""
        for at in range(0, len(tokens), CHUNK):
            chunk = tokens[at : at + CHUNK]
            last = at + len(chunk) == len(tokens)
            self.read(chunk, np.array([len(chunk) - 1] if last else [], np.int32))
        return int(self._scratch.argmax()[0])

    def logits(self) -> Floats:
        """[outputs, n_vocab], overwritten by the next read."""
        return self._scratch.logits()


def alone(model: Model, ring: Ring, positions: int) -> Reader:
    """A reader with a pool of its own, as large as it needs for that many positions."""
    count = ring.table_size(positions)
    return Reader(model, ring, private_pool(model, count), range(count))


def full_attention(positions: int) -> Ring:
    """A ring that never wraps and shows everything."""
    return Ring.of(0, -(-positions // BLOCK_TOKENS) * BLOCK_TOKENS, CHUNK)
