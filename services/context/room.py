"""How many blocks could be given away without breaking a promise. Computed, never counted along.

    available = free + evictable - promised

    promised    entries that live tables still lack up to their worst case
                + copies that must be made before shared blocks are written:
                  a block with h holders, w of which may write into it before they end, costs
                  w copies while h > w, and w - 1 when every holder writes (the last one keeps it)

A live sequence takes only what is promised to it: growing by a block takes one free and one promised, a copy
takes one free and makes the others' copies one less. So `available` stays at 0 or above once it is, and
whoever was admitted can always finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from services.context.pool import BlockPool
from services.context.prefix_cache import PrefixCache
from services.context.sequence import Sequence


def available(
    pool: BlockPool,
    cache: PrefixCache,
    live: Collection[Sequence],
    retired: Counter[int],
    change: Counter[int],
) -> int:
    """Blocks promised to nobody, if `change` were added to the reference counts and `live` were the live
    sequences. `retired` references hold a block but need no copy."""

    def references(block: int) -> int:
        return pool.references(block) + change[block]

    freed = sum(references(block) == 0 for block in change)
    evictable = sum(references(block) == 1 for block in cache.blocks)
    missing = sum(sequence.worst_blocks() - len(sequence.blocks) for sequence in live)
    copies = 0
    for block, writers in Counter(_overwritable(live)).items():
        holders = references(block) - retired[block] - (block in cache)
        copies += writers - (holders == writers)
    return pool.free + freed + evictable - missing - copies


def _overwritable(live: Iterable[Sequence]) -> Iterable[int]:
    for sequence in live:
        yield from sequence.overwritable()
