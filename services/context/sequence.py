"""One token history: its ring, its block table, and how far it has come.

tokens   [ prompt ............................ | answer ......... ]   n known
in pool  [ 0 ................................ kv_len )                kv_len == n - 1 while it decodes
slots    [ sink: S, shared with the profile | ring: N, wraps ]        Slot(p), see `Ring`
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.bus.messages import SeqOpen
from shared.kv import blocks_of
from shared.native import BLOCK_TOKENS


@dataclass(frozen=True)
class Ring:
    """Where positions live: Slot(p) = p for p < sink, else start + (p - sink) mod capacity.

    `window` W positions behind the sink are visible. `capacity` N is W plus two commits, so that neither the
    commit under way nor the one before it, whose answer is still to come, overwrites a visible position.
    """

    sink: int
    window: int
    capacity: int

    @classmethod
    def of(cls, sink: int, window: int, longest_commit: int) -> Ring:
        return cls(sink, window, blocks_of(window + 2 * longest_commit) * BLOCK_TOKENS)

    @property
    def sink_blocks(self) -> int:
        return blocks_of(self.sink)

    def slot(self, position: int) -> int:
        if position < self.sink:
            return position
        return self.sink_blocks * BLOCK_TOKENS + (position - self.sink) % self.capacity

    def table_size(self, positions: int) -> int:
        """Entries of the block table that hold every position in [0, positions)."""
        if positions <= self.sink:
            return blocks_of(positions)
        return self.sink_blocks + blocks_of(min(positions - self.sink, self.capacity))


@dataclass
class Sequence:
    """A live or finished sequence. `max_tokens` 0: a profile's prefix, which is only computed."""

    seq: int
    request_id: str
    profile: str
    severity: int
    ring: Ring
    tokens: list[int]
    prompt_len: int
    max_tokens: int
    stop_tokens: list[int]
    kv_len: int = 0
    draft_kv_len: int = 0
    epoch: int = 0
    blocks: list[int] = field(default_factory=list)
    shared: int = 0  # first table entries that are the profile's
    cached_tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    finish: str = ""  # why it ended; "" while it lives
    slot: int = -1  # of its record
    started: float = 0.0  # monotonic seconds
    label: str = ""  # for people; not kept over a restart of context, the gateway submits again
    followed: bool = False  # the gateway that is joined now has submitted it and has every token so far

    @property
    def end(self) -> int:
        """No position at or behind this one is ever written."""
        return self.prompt_len + self.max_tokens

    @property
    def answer_len(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    def worst_blocks(self) -> int:
        """Blocks it holds when its answer is as long as allowed, the shared ones included."""
        return self.ring.table_size(self.end)

    def missing_blocks(self, chunk: int, step: int) -> int:
        """Blocks to add so that the next two commits find theirs.

        A commit computes at most `chunk` positions of the prompt, or `step` positions behind it.
        """
        ahead = min(self.kv_len + 2 * max(chunk, step), len(self.tokens) + 2 * step, self.end)
        return max(0, self.ring.table_size(ahead) - len(self.blocks))

    def covers(self, position: int) -> bool:
        """Whether every position below `position` has a block."""
        return self.ring.table_size(position) <= len(self.blocks)

    def snapshot(self) -> SeqOpen:
        return SeqOpen(
            seq=self.seq,
            epoch=self.epoch,
            tokens=list(self.tokens),
            prompt_len=self.prompt_len,
            kv_len=self.kv_len,
            draft_kv_len=self.draft_kv_len,
            blocks=list(self.blocks),
            sink=self.ring.sink,
            ring=self.ring.capacity,
            window=self.ring.window,
            max_tokens=self.max_tokens,
            stop_tokens=self.stop_tokens,
            severity=self.severity,
        )
