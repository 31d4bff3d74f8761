"""Hands bus messages from the service's thread to the model's thread, which may be far behind."""

from __future__ import annotations

from threading import Condition
from typing import TypeAlias

from shared.bus.messages import SeqClose, SeqOpen, SeqState
from shared.native import KvPool

Item: TypeAlias = SeqOpen | SeqState | SeqClose | KvPool


class Mailbox:
    """Ordered, and bounded by what is alive: news of a sequence that is closed or opened anew is dropped, and so
    is everything when the pool changes. None from `take` means closed."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._changed = Condition()
        self._closed = False

    def put(self, item: Item) -> None:
        with self._changed:
            if isinstance(item, KvPool):
                self._items.clear()
            elif isinstance(item, SeqOpen | SeqClose):
                self._items = [i for i in self._items if isinstance(i, KvPool) or i.seq != item.seq]
            self._items.append(item)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self, timeout_s: float) -> list[Item] | None:
        """Everything there is; waits `timeout_s` at most when there is nothing."""
        with self._changed:
            if not self._items and not self._closed and timeout_s > 0:
                self._changed.wait(timeout_s)
            if self._closed:
                return None
            items, self._items = self._items, []
            return items
