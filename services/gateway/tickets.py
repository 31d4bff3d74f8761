"""Which message a PUBACK is for: tickets are the gateway's numbers, packet ids those of one connection."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from services.gateway.events import Confirmed


class Tickets:
    """`publish` and `clear` from one thread, `settle` from paho's; what is over arrives in `confirmed`."""

    def __init__(self) -> None:
        self.confirmed: queue.SimpleQueue[Confirmed] = queue.SimpleQueue()
        self._by_packet: dict[int, int] = {}
        self._early: dict[int, str | None] | None = None  # while packet ids are not known yet
        self._lock = threading.Lock()

    def publish(self, ticket: int, send: Callable[[], int]) -> None:
        """`send` publishes and returns the packet id, which its PUBACK may overtake."""
        with self._lock:
            self._early = {}
        packet = send()
        with self._lock:
            early, self._early = self._early or {}, None
            if packet in early:
                self.confirmed.put(Confirmed(ticket, early[packet]))
            else:
                self._by_packet[packet] = ticket

    def settle(self, packet: int, refused: str | None) -> None:
        """A PUBACK. `refused`: the broker's reason when it does not take the message."""
        with self._lock:
            ticket = self._by_packet.pop(packet, None)
            if ticket is not None:
                self.confirmed.put(Confirmed(ticket, refused))
            elif self._early is not None:
                self._early[packet] = refused

    def clear(self) -> None:
        """A new connection: PUBACKs of the last one will not come."""
        with self._lock:
            self._by_packet.clear()
