"""K/V of one model in memory of this process: for an engine that runs without the services."""

from __future__ import annotations

import mmap

import numpy as np

from shared.config.settings import KvFormat
from shared.kv import blocks_of
from shared.native import BLOCK_TOKENS, KvPool, Model, SequenceView


def private_pool(model: Model, count: int, kv: KvFormat = "f16") -> KvPool:
    """`count` blocks."""
    planes = [model.plane]
    return KvPool(mmap.mmap(-1, count * KvPool.block_bytes(planes, kv)), count, planes, kv)


def private_view(model: Model, positions: int, kv: KvFormat = "f16") -> SequenceView:
    """A sequence with a pool of its own for so many positions, all of them visible; it has no sink."""
    count = blocks_of(positions)
    view = SequenceView(private_pool(model, count, kv), 0, 0, count * BLOCK_TOKENS, count * BLOCK_TOKENS)
    view.set_blocks(0, np.arange(count, dtype=np.int32))
    return view
