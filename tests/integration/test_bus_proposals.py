"""Proposals go from the draft service straight to the verifier, the newest ones only."""

from __future__ import annotations

import time

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints, socket_file
from shared.bus.messages.sequences import Proposal
from tests.integration.bus_world import (
    closing_client,
    hello,
    peer_process,
    proposal,
    verifier_and_draft,
    wait_reached,
)
from tests.integration.waiting import wait_for


def test_proposals_go_straight_to_the_verifier(endpoints: Endpoints) -> None:
    """No context is there."""
    with verifier_and_draft(endpoints) as (verifier, draft):
        draft.propose(proposal(7))
        wait_for(lambda: verifier.receive(0.1) == proposal(7), "the proposal")


def test_stale_proposals_are_dropped_not_queued(endpoints: Endpoints) -> None:
    """A verifier that does not read gets the newest proposals, and memory stays bounded."""
    with verifier_and_draft(endpoints) as (verifier, draft):
        for base in range(1, 2001):
            draft.propose(proposal(base))
        wait_for(lambda: not draft._proposals, "an empty queue")
        waiting = verifier._inbox._proposals

        def newest_has_arrived() -> bool:
            draft.propose(proposal(2001))
            return len(waiting) > 0 and waiting[-1] == proposal(2001)

        wait_for(newest_has_arrived, "the newest proposal")
        bases: list[int] = []
        while isinstance(item := verifier.receive(0.1), Proposal):
            bases.append(item.base)
        assert len(set(bases)) <= 64
        assert bases == sorted(bases)
        assert bases[-1] == 2001


def test_proposals_without_a_verifier_are_dropped(endpoints: Endpoints) -> None:
    with closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft:
        draft.start()
        for base in range(100):
            draft.propose(proposal(base))
            time.sleep(0.001)
        wait_for(lambda: draft.dropped >= 90, "dropped proposals")


def test_a_restarted_verifier_gets_the_proposals(endpoints: Endpoints) -> None:
    """Also when the first was killed and left its socket file behind."""
    with closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft:
        draft.start()
        process = peer_process(endpoints, "verifier", "bind")
        wait_for(socket_file(endpoints.proposals).exists, "its socket")
        process.kill()
        process.wait()
        assert socket_file(endpoints.proposals).exists()
        with closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier:
            verifier.start()
            wait_reached(verifier, draft)


def test_a_fenced_owner_does_not_remove_the_socket_of_its_successor(endpoints: Endpoints) -> None:
    older = BusClient(endpoints, hello("verifier"), "bind")
    older.start()
    with closing_client(BusClient(endpoints, hello("verifier"), "bind")) as newer:
        newer.start()
        older.close("fenced")
        assert socket_file(endpoints.proposals).exists()
        with closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft:
            draft.start()
            wait_reached(newer, draft)
