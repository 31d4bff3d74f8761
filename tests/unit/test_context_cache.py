"""The prefix cache: what is found is the same tokens behind the same tokens, and nothing leaks."""

from __future__ import annotations

import pytest

from services.context.pool import BlockPool
from services.context.prefix_cache import Entry, PrefixCache
from shared.native import BlockAllocator

TOKENS = list(range(100, 164))


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(BlockAllocator(bytearray(BlockAllocator.bytes_needed(8)), 8, True))


def filled(cache: PrefixCache, tokens: list[int], window: int = 64) -> list[int]:
    """Blocks of a sequence that has computed `tokens` and ended."""
    parent: Entry | None = cache.root(window, [1, 2])
    blocks = []
    for start in range(0, len(tokens), 16):
        block = cache.pool.take()
        assert block is not None
        assert parent is not None
        parent = cache.insert(parent, tokens[start : start + 16], block)
        blocks.append(block)
    cache.touch(reversed(blocks))
    cache.pool.release(blocks)
    return blocks


def found(
    cache: PrefixCache, tokens: list[int], window: int = 64, prefix: tuple[int, ...] = (1, 2)
) -> list[int]:
    return [entry.block for entry in cache.find(cache.root(window, prefix), tokens)]


def test_the_longest_chain_of_full_blocks_is_found(pool: BlockPool) -> None:
    cache = PrefixCache(pool)
    blocks = filled(cache, TOKENS)
    assert found(cache, [*TOKENS, 7]) == blocks
    assert found(cache, TOKENS[:47]) == blocks[:2]
    assert found(cache, [*TOKENS[:20], 5, *TOKENS[21:]]) == blocks[:1]
    assert found(cache, TOKENS[16:]) == []


def test_other_profiles_find_nothing(pool: BlockPool) -> None:
    cache = PrefixCache(pool)
    filled(cache, TOKENS)
    assert found(cache, TOKENS, window=128) == []
    assert found(cache, TOKENS, prefix=(1, 3)) == []


def test_a_collision_of_hashes_is_never_a_hit(pool: BlockPool) -> None:
    """Every block has the same name here."""
    cache = PrefixCache(pool, hasher=lambda _parent, _tokens: b"x")
    blocks = filled(cache, TOKENS[:16])
    assert found(cache, TOKENS[:16]) == blocks
    assert found(cache, TOKENS[16:32]) == []
    assert found(cache, TOKENS[:16], prefix=(9,)) == []


def test_a_child_is_not_found_behind_another_parent_of_the_same_name(pool: BlockPool) -> None:
    """The parent was evicted, and one with other tokens but the same hash took its place."""
    cache = PrefixCache(pool, hasher=lambda parent, tokens: bytes([len(parent) + 1]) * (len(parent) + 1))
    first = filled(cache, TOKENS[:32])
    cache.drop(first[0])
    filled(cache, TOKENS[48:64])
    assert len(found(cache, [*TOKENS[48:64], *TOKENS[16:32]])) == 1


def test_the_least_recently_used_goes_first_and_a_chain_from_its_end(pool: BlockPool) -> None:
    cache = PrefixCache(pool)
    old, new = filled(cache, TOKENS[:32]), filled(cache, TOKENS[32:])
    cache.use(cache.find(cache.root(64, [1, 2]), TOKENS[:32]), 0)
    assert cache.evict()
    assert found(cache, TOKENS[32:]) == new[:1]
    assert found(cache, TOKENS[:32]) == old
    assert cache.counters.evicted_blocks == 1


def test_what_somebody_holds_is_not_evicted(pool: BlockPool) -> None:
    cache = PrefixCache(pool)
    blocks = filled(cache, TOKENS[:32])
    pool.retain(blocks)
    assert not cache.evict()
    pool.release(blocks)
    assert [cache.evict() for _ in range(3)] == [True, True, False]
    assert pool.free == pool.total


def test_the_same_content_is_kept_once(pool: BlockPool) -> None:
    cache = PrefixCache(pool)
    first = filled(cache, TOKENS)
    filled(cache, TOKENS)
    assert cache.blocks == first
    assert pool.free == pool.total - len(first)
