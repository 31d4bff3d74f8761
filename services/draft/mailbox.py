"""Hands bus messages from the service's thread to the model's thread, which may be far behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import TypeAlias

from shared.bus.messages.sequences import SeqAppend, SeqClose, SeqOpen, SeqState
from shared.native import KvPool

MOST_BEHIND = 512  # tokens that a sequence may be behind with while the reader is paused; then it is given up
_PAUSE_S = 1.0  # how often a paused reader looks whether it still is

Item: TypeAlias = SeqOpen | SeqState | SeqAppend | SeqClose | KvPool


class Mailbox:
    """Ordered, and bounded by what is alive, however long the reader takes.

    What is queued for a sequence that is closed or opened anew is dropped, and everything when the pool
    changes. A closed sequence leaves a message only if the reader has it. While the reader is paused it
    sleeps, and a sequence that it would then have much to catch up with is closed for it.
    """

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._changed = Condition()
        self._closed = False
        self._paused = False
        self._behind: dict[int, int] = {}  # tokens queued for a sequence since the pause began
        self._with_reader: set[int] = set()  # sequences that the reader has been told of
        self._ended: set[int] = set()  # of these, what is over without the reader knowing it yet

    def put(self, item: Item) -> None:
        with self._changed:
            if not self._closed:
                self._put(item)
                if not self._paused:
                    self._changed.notify()

    def forget(self) -> None:
        """Every sequence is over; nothing is drafted until a pool is put."""
        with self._changed:
            self._items.clear()
            for seq in tuple(self._with_reader):
                self._put(SeqClose(seq=seq, reason="context lost"))
            self._changed.notify()

    def pause(self, paused: bool) -> None:
        """Whether the reader is to sleep, whatever is queued."""
        with self._changed:
            if paused != self._paused:
                self._paused = paused
                self._behind.clear()
                self._changed.notify()

    def close(self) -> None:
        """No more is taken or kept."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify()

    def take(self, timeout_s: float) -> list[Item] | None:
        """Everything there is, after `timeout_s` at most or until a pause ends; None: closed."""
        with self._changed:
            while self._paused and not self._closed:
                self._changed.wait(_PAUSE_S)
            if not self._items and not self._closed and timeout_s > 0:
                self._changed.wait(timeout_s)
            if self._closed:
                return None
            items, self._items = self._items, []
            self._ended.clear()
            for item in items:
                self._tell(item)
            return items

    @contextmanager
    def writing(self, seq: int) -> Iterator[bool]:
        """Hold while writing to a sequence's blocks; False when it is closed and they are given back.

        Once `put` has taken a SeqClose, no write is under way or will come, however far behind the thread is.
        """
        with self._changed:
            yield seq not in self._ended

    def _put(self, item: Item) -> None:
        if self._paused and isinstance(item, SeqState | SeqAppend):
            behind = self._behind[item.seq] = self._behind.get(item.seq, 0) + len(item.tokens)
            if behind > MOST_BEHIND:
                self._put(SeqClose(seq=item.seq, reason="left behind"))
                return
        if isinstance(item, KvPool):
            self._items.clear()
            self._ended |= self._with_reader
        elif not isinstance(item, SeqState | SeqAppend):
            self._behind.pop(item.seq, None)
            self._items = [i for i in self._items if isinstance(i, KvPool) or i.seq != item.seq]
        if isinstance(item, SeqClose):
            if item.seq not in self._with_reader:
                return
            self._ended.add(item.seq)
        self._items.append(item)

    def _tell(self, item: Item) -> None:
        match item:
            case SeqOpen(seq=seq):
                self._with_reader.add(seq)
            case SeqClose(seq=seq):
                self._with_reader.discard(seq)
            case KvPool():
                self._with_reader.clear()
