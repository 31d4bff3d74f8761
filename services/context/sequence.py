"""One token history: its ring, its block table, and how far it has come.

tokens   [ forgotten | prompt or stream ....... | answer ......... ]   positions first ... known
in pool  [ 0 ................................ kv_len )                kv_len == known - 1 while it decodes
slots    [ sink: S, shared with the profile | ring: N, wraps ]        Slot(p), see `Ring`

Three kinds: a request has an answer and ends; a stream is appended to and never ends by itself; a prefix is a
profile's sink while it is computed. Only a stream, and what was forked from one, forgets old tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from services.context.prefix_cache import Chain
from shared.bus.messages.requests import GREEDY, Sampling
from shared.bus.messages.sequences import SeqOpen
from shared.kv import blocks_of
from shared.native import BLOCK_TOKENS

Kind = Literal["request", "stream", "prefix"]
UNOPENED = 0  # a sequence gets its id when it is opened
ENDLESS = 2**53 - 1  # end of a stream: the largest position there is


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

    def entries(self, begin: int, end: int) -> Iterator[int]:
        """Table entries that positions [begin, end) are written to, each once, in the order of writing."""
        if begin >= end:
            return
        if begin < self.sink:
            yield from range(begin // BLOCK_TOKENS, blocks_of(min(end, self.sink)))
        first = max(begin, self.sink) - self.sink
        first -= first % BLOCK_TOKENS
        last = min(end - self.sink, first + self.capacity)
        for offset in range(first, last, BLOCK_TOKENS):
            yield self.sink_blocks + offset % self.capacity // BLOCK_TOKENS

    def shows(self, entry: int, length: int) -> bool:
        """Whether a token at position `length` sees a position below it that this table entry holds."""
        if entry < self.sink_blocks:
            return entry * BLOCK_TOKENS < length
        if length <= self.sink:
            return False
        newest = length - 1
        start = (entry - self.sink_blocks) * BLOCK_TOKENS
        behind_start = (newest - self.sink - start) % self.capacity
        newest -= max(0, behind_start - (BLOCK_TOKENS - 1))
        return newest >= max(self.sink, length - self.window + 1)


@dataclass
class Sequence:
    """A live or finished sequence. `max_tokens` 0: it is only computed. `tokens[i]` is at `first + i`."""

    seq: int
    request_id: str
    profile: str
    severity: int
    ring: Ring
    tokens: list[int]
    prompt_len: int
    max_tokens: int
    stop_tokens: list[int]
    stop: list[str] = field(default_factory=list)
    sampling: Sampling = GREEDY
    kv_len: int = 0
    draft_kv_len: int = 0
    epoch: int = 0
    blocks: list[int] = field(default_factory=list)
    first: int = 0  # tokens before this position are forgotten
    stream: str = ""  # its own name; "" unless it is a stream
    serial: int = 0  # of a stream: the last append
    used: float = 0.0  # of a stream: when the last append or question came, monotonic seconds
    forked: bool = False  # from a stream: it cannot be computed again
    cached_tokens: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    finish: str = ""  # why it ended; "" while it lives
    slot: int = -1  # of its record
    started: float = 0.0  # monotonic seconds
    label: str = ""  # for people; not kept over a restart of context, the gateway submits again
    deadline: float | None = None  # monotonic seconds
    followed: bool = False  # the gateway that is joined now has submitted it and has every token so far
    chain: Chain = field(default_factory=Chain)  # its blocks in the prefix cache
    retired: list[tuple[int, int]] = field(default_factory=list)  # (epoch, block), see cow.py

    @property
    def kind(self) -> Kind:
        if self.stream:
            return "stream"
        return "request" if self.request_id else "prefix"

    @property
    def known(self) -> int:
        """Positions whose token is known."""
        return self.first + len(self.tokens)

    @property
    def pending(self) -> int:
        """Known tokens that are not computed."""
        return self.known - self.kv_len

    @property
    def end(self) -> int:
        """No position at or behind this one is ever written."""
        return ENDLESS if self.stream else self.prompt_len + self.max_tokens

    @property
    def answer_len(self) -> int:
        return self.known - self.prompt_len

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.prompt_len - self.first :]

    def worst_blocks(self) -> int:
        """Blocks it holds when its answer is as long as allowed, the shared ones included."""
        return self.ring.table_size(self.end)

    def ahead(self, chunk: int, step: int) -> int:
        """End of what the next two commits may write.

        A commit computes at most `chunk` known positions, or `step` positions behind them if it answers.
        """
        answer = 2 * step if self.max_tokens else 0
        return min(self.kv_len + 2 * max(chunk, step), self.known + answer, self.end)

    def overwritable(self) -> list[int]:
        """Blocks of its table that it may still write into before it ends."""
        entries = self.ring.entries(self.kv_len, self.end)
        return [self.blocks[entry] for entry in entries if entry < len(self.blocks)]

    def covers(self, position: int) -> bool:
        """Whether every position below `position` has a block."""
        return self.ring.table_size(position) <= len(self.blocks)

    def snapshot(self) -> SeqOpen:
        return SeqOpen(
            seq=self.seq,
            epoch=self.epoch,
            first=self.first,
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
            stop=self.stop,
            sampling=self.sampling,
            severity=self.severity,
        )
