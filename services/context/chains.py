"""A sequence's ring as a chain of the prefix cache.

Only what saw everything before it is entered: positions below sink + window, in blocks that are full, and
that no commit under way wraps into. Ring block j holds positions S + 16 j … S + 16 j + 15 then.
"""

from __future__ import annotations

from services.context.prefix_cache import Entry, PrefixCache
from services.context.sequence import Sequence
from shared.native import BLOCK_TOKENS


def cached_start(cache: PrefixCache, sequence: Sequence, draft_kv_len: int) -> list[Entry]:
    """Put a new sequence behind the longest cached chain of its tokens; its prefix is computed already.

    `draft_kv_len` says how far the prefix is in the draft's plane. The last token stays to be computed.
    """
    sink = sequence.ring.sink
    root = cache.root(sequence.ring.window, sequence.tokens[:sink])
    entries = cache.find(root, sequence.tokens[sink:-1])
    sequence.kv_len = sink + BLOCK_TOKENS * len(entries)
    sequence.draft_kv_len = draft_kv_len
    if draft_kv_len == sink:
        drafted = next((i for i, entry in enumerate(entries) if not entry.drafted), len(entries))
        sequence.draft_kv_len += BLOCK_TOKENS * drafted
    sequence.chain.length = len(entries)
    sequence.chain.tip = entries[-1] if entries else None
    return entries


def extend(cache: PrefixCache, sequence: Sequence, ahead: int) -> None:
    """Enter what has been computed since the last call; the next commits write up to `ahead`."""
    chain, ring = sequence.chain, sequence.ring
    while not chain.closed:
        begin = ring.sink + BLOCK_TOKENS * chain.length
        end = begin + BLOCK_TOKENS
        if end > min(sequence.kv_len, ring.sink + ring.window) or begin + ring.capacity < ahead:
            return
        entry = _insert(cache, sequence, begin, end)
        chain.closed = entry is None
        chain.tip = entry
        chain.length += entry is not None


def drafted(cache: PrefixCache, sequence: Sequence, before: int) -> None:
    """The draft's plane has come from `before` to `draft_kv_len`: mark the cached blocks it has filled."""
    sink = sequence.ring.sink
    first = max(0, before - sink) // BLOCK_TOKENS
    last = min(sequence.chain.length, max(0, sequence.draft_kv_len - sink) // BLOCK_TOKENS)
    for j in range(first, last):
        cache.mark_drafted(sequence.blocks[sequence.ring.sink_blocks + j])


def _insert(cache: PrefixCache, sequence: Sequence, begin: int, end: int) -> Entry | None:
    first, chain, ring = sequence.first, sequence.chain, sequence.ring
    if begin < first or (chain.tip is None and first > 0):
        return None
    parent = chain.tip or cache.root(ring.window, sequence.tokens[: ring.sink])
    block = sequence.blocks[ring.sink_blocks + chain.length]
    entry = cache.insert(parent, sequence.tokens[begin - first : end - first], block)
    if entry is not None and sequence.draft_kv_len >= end:
        cache.mark_drafted(block)
    return entry
