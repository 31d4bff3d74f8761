"""Hands bus messages from the service's thread to the model's thread, which may be far behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import TypeAlias

from shared.bus.messages import SeqClose, SeqOpen, SeqState
from shared.native import KvPool

Item: TypeAlias = SeqOpen | SeqState | SeqClose | KvPool


class Mailbox:
    """Ordered, and bounded by what is alive, however long the reader takes.

    What is queued for a sequence that is closed or opened anew is dropped, and everything when the pool
    changes. A closed sequence leaves a message only if the reader has it.
    """

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._changed = Condition()
        self._closed = False
        self._with_reader: set[int] = set()  # sequences that the reader has been told of
        self._ended: set[int] = set()  # of these, what is over without the reader knowing it yet

    def put(self, item: Item) -> None:
        with self._changed:
            if not self._closed:
                self._put(item)
                self._changed.notify()

    def forget(self) -> None:
        """Every sequence is over; nothing is drafted until a pool is put."""
        with self._changed:
            self._items.clear()
            for seq in tuple(self._with_reader):
                self._put(SeqClose(seq=seq, reason="context lost"))
            self._changed.notify()

    def close(self) -> None:
        """No more is taken or kept."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify()

    def take(self, timeout_s: float) -> list[Item] | None:
        """Everything there is, after waiting for it `timeout_s` at most; None: closed."""
        with self._changed:
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
        if isinstance(item, KvPool):
            self._items.clear()
            self._ended |= self._with_reader
        elif not isinstance(item, SeqState):
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
