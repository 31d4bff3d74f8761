"""Full blocks that can be used again: found by a chained hash of their tokens, and compared token by token.

    root (a profile: window and prefix) ◀── [16 tokens] ◀── [16 tokens] ◀── …
                                             digest = blake2b(parent's digest, tokens)

An entry knows its parent as an object, not only by its digest: after a collision, or when the parent was
evicted and another took its place, the child is no longer found. So a hit is always the same tokens behind
the same tokens.

The cache holds one reference of every block in it. A block that nobody else holds may be evicted, the least
recently used first; whoever ends touches its blocks from the last to the first, so that a chain goes from its
end. Nothing of it outlives the process: after a crash live sequences register their blocks anew.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from services.context.pool import BlockPool
from shared.native import BLOCK_TOKENS

_MOST_ROOTS = 64
_DIGEST_BYTES = 16


def digest(parent: bytes, tokens: bytes) -> bytes:
    return hashlib.blake2b(parent + tokens, digest_size=_DIGEST_BYTES).digest()


@dataclass(eq=False)
class Entry:
    """A cached block; `drafted`: the draft's plane of it is filled, too. A root has no block."""

    digest: bytes
    parent: Entry | None
    tokens: tuple[int, ...]
    block: int
    drafted: bool = False


@dataclass
class Chain:
    """How far a sequence's ring is in the cache: its first `length` blocks, the last of them at `tip`."""

    length: int = 0
    tip: Entry | None = None
    closed: bool = False  # no more is entered


@dataclass
class Counters:
    """Since start. Tokens of prompts behind the profile's prefix: found, or to be computed."""

    hit_tokens: int = 0
    miss_tokens: int = 0
    hit_blocks: int = 0
    inserted_blocks: int = 0
    evicted_blocks: int = 0


@dataclass
class PrefixCache:
    """`hasher(parent digest, int32 tokens)` names a block."""

    pool: BlockPool
    hasher: Callable[[bytes, bytes], bytes] = digest
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self._roots: OrderedDict[tuple[int, tuple[int, ...]], Entry] = OrderedDict()
        self._by_digest: OrderedDict[bytes, Entry] = OrderedDict()  # the least recently used first
        self._by_block: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._by_block)

    def __contains__(self, block: int) -> bool:
        return block in self._by_block

    @property
    def blocks(self) -> list[int]:
        return list(self._by_block)

    def root(self, window: int, prefix: Sequence[int]) -> Entry:
        """The start of all chains of one profile."""
        key = window, tuple(prefix)
        if key not in self._roots:
            name = self.hasher(b"", _bytes((window, *key[1])))
            self._roots[key] = Entry(name, None, key[1], -1)
            if len(self._roots) > _MOST_ROOTS:
                self._roots.popitem(last=False)
        self._roots.move_to_end(key)
        return self._roots[key]

    def find(self, root: Entry, tokens: Sequence[int]) -> list[Entry]:
        """The longest chain over full blocks of `tokens`, which follow the root's prefix."""
        found: list[Entry] = []
        tip = root
        for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            child = self._child(tip, tuple(tokens[start : start + BLOCK_TOKENS]))
            if child is None:
                break
            found.append(child)
            tip = child
        return found

    def use(self, entries: Sequence[Entry], missed_tokens: int) -> None:
        """A prompt starts on these."""
        self.touch(entry.block for entry in reversed(entries))
        self.counters.hit_blocks += len(entries)
        self.counters.hit_tokens += len(entries) * BLOCK_TOKENS
        self.counters.miss_tokens += missed_tokens

    def insert(self, parent: Entry, tokens: Sequence[int], block: int) -> Entry | None:
        """Enter a computed block, unless the same is there already. None: the chain cannot go on here."""
        if not self._holds(parent):
            return None
        content = tuple(tokens)
        there = self._child(parent, content)
        if there is not None:
            return there
        name = self.hasher(parent.digest, _bytes(content))
        if name in self._by_digest or block in self._by_block:
            return None
        entry = Entry(name, parent, content, block)
        self.pool.retain([block])
        self._by_digest[name] = self._by_block[block] = entry
        self.counters.inserted_blocks += 1
        return entry

    def mark_drafted(self, block: int) -> None:
        entry = self._by_block.get(block)
        if entry is not None:
            entry.drafted = True

    def touch(self, blocks: Iterable[int]) -> None:
        """These were used, the last one latest."""
        for block in blocks:
            if block in self._by_block:
                self._by_digest.move_to_end(self._by_block[block].digest)

    def drop(self, block: int) -> None:
        """Forget a block: its content is about to change, or its place is needed."""
        entry = self._by_block.pop(block)
        del self._by_digest[entry.digest]
        self.pool.release([block])

    def evict(self) -> bool:
        """Give back the least recently used block that nobody else holds; False when there is none."""
        blocks = (entry.block for entry in self._by_digest.values())
        oldest = next((block for block in blocks if self.pool.references(block) == 1), None)
        if oldest is None:
            return False
        self.drop(oldest)
        self.counters.evicted_blocks += 1
        return True

    def _child(self, parent: Entry, tokens: tuple[int, ...]) -> Entry | None:
        name = self.hasher(parent.digest, _bytes(tokens))
        entry = self._by_digest.get(name)
        if entry is None or entry.tokens != tokens:
            return None
        if entry.parent is parent:
            return entry
        if not self._holds(entry.parent):  # an orphan that nothing leads to any more: make room
            self.drop(entry.block)
        return None

    def _holds(self, entry: Entry | None) -> bool:
        """Whether chains can still lead through this entry. A root can always be come to."""
        return entry is not None and (entry.block < 0 or self._by_block.get(entry.block) is entry)


def _bytes(tokens: Sequence[int]) -> bytes:
    return array("i", tokens).tobytes()
