"""Every PUBACK finds its message once, also the one that comes before its packet id is known."""

from __future__ import annotations

import queue

import pytest

from services.gateway.events import Confirmed
from services.gateway.tickets import Tickets


def taken(tickets: Tickets) -> list[Confirmed]:
    found = []
    try:
        while True:
            found.append(tickets.confirmed.get_nowait())
    except queue.Empty:
        return found


@pytest.mark.parametrize("refused", [None, "Not authorized"])
def test_a_puback_confirms_its_ticket_once(refused: str | None) -> None:
    tickets = Tickets()
    tickets.publish(70, lambda: 1)
    tickets.publish(71, lambda: 2)
    assert taken(tickets) == []
    for _ in range(2):
        tickets.settle(2, refused)
    assert taken(tickets) == [Confirmed(71, refused)]


@pytest.mark.parametrize("refused", [None, "Not authorized"])
def test_a_puback_may_come_before_its_packet_id(refused: str | None) -> None:
    """That of an earlier message may come in the same moment."""
    tickets = Tickets()
    tickets.publish(70, lambda: 1)

    def send() -> int:
        tickets.settle(2, refused)
        tickets.settle(1, None)
        return 2

    tickets.publish(71, send)
    assert taken(tickets) == [Confirmed(70, None), Confirmed(71, refused)]


def test_pubacks_of_nobody_are_forgotten() -> None:
    """A packet id is used again: what nobody waited for must not confirm the next message."""
    tickets = Tickets()
    tickets.settle(1, None)
    tickets.publish(70, lambda: 1)
    assert taken(tickets) == []


def test_a_new_connection_has_packet_ids_of_its_own() -> None:
    tickets = Tickets()
    tickets.publish(70, lambda: 1)
    tickets.clear()
    tickets.settle(1, None)
    tickets.publish(71, lambda: 1)
    tickets.settle(1, None)
    assert taken(tickets) == [Confirmed(71, None)]
