"""What has arrived and was not yet read: bounded, in order, readable with a timeout."""

from __future__ import annotations

import threading
import time
from collections import deque

from shared.bus.events import Joined, Lost
from shared.bus.messages.fields import Message
from shared.bus.messages.sequences import Proposal

Item = Message | Joined | Lost


class Inbox:
    """Messages and bus events in order, and beside them the newest proposals.

    A reader that falls behind loses old proposals, which are worth nothing by then; `put` reports when
    anything else would be lost, so that the link can be given up and the state fetched anew.
    """

    def __init__(self, limit: int, proposals: int) -> None:
        self._items: deque[Item] = deque()
        self._proposals: deque[Proposal] = deque(maxlen=proposals)
        self._limit = limit
        self._failure: Exception | None = None
        self._ready = threading.Condition()
        self.stale_proposals = 0

    def put(self, item: Item) -> bool:
        """False when the inbox is full; a Lost always fits and replaces what is unread of its session."""
        with self._ready:
            if isinstance(item, Lost):
                self._items.clear()
            elif len(self._items) >= self._limit:
                return False
            self._items.append(item)
            self._ready.notify()
        return True

    def put_proposal(self, proposal: Proposal) -> None:
        with self._ready:
            if len(self._proposals) == self._proposals.maxlen:
                self.stale_proposals += 1
            self._proposals.append(proposal)
            self._ready.notify()

    def fail(self, failure: Exception) -> None:
        """Every `get` raises `failure` from now on, once what came before has been read."""
        with self._ready:
            self._failure = failure
            self._ready.notify_all()

    def get(self, timeout_s: float) -> Item | None:
        """The next item; None when there is none within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        with self._ready:
            while True:
                if self._items:
                    return self._items.popleft()
                if self._failure is not None:
                    raise self._failure
                if self._proposals:
                    return self._proposals.popleft()
                left = deadline - time.monotonic()
                if left <= 0 or not self._ready.wait(left):
                    return None
