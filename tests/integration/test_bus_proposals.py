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
    wait,
)


def test_proposals_go_straight_to_the_verifier(endpoints: Endpoints) -> None:
    with (
        closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier,
        closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft,
    ):
        verifier.start()
        draft.start()
        wait(lambda: draft.propose(proposal(1)) or verifier.receive(0.1) is not None)


def test_stale_proposals_are_dropped_not_queued(endpoints: Endpoints) -> None:
    """A verifier that does not read gets the newest proposals, and memory stays bounded."""
    with (
        closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier,
        closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft,
    ):
        verifier.start()
        draft.start()
        wait(lambda: draft.propose(proposal(0)) or verifier.receive(0.1) is not None)
        for base in range(1, 2001):
            draft.propose(proposal(base))
        time.sleep(0.5)
        draft.propose(proposal(2001))
        time.sleep(0.5)
        bases = []
        while (item := verifier.receive(0.1)) is not None:
            assert isinstance(item, Proposal)
            bases.append(item.base)
        assert len(bases) <= 64
        assert bases == sorted(bases)
        assert bases[-1] == 2001


def test_proposals_without_a_verifier_are_dropped(endpoints: Endpoints) -> None:
    with closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft:
        draft.start()
        for base in range(100):
            draft.propose(proposal(base))
            time.sleep(0.001)
        wait(lambda: draft.dropped >= 90)


def test_a_restarted_verifier_gets_the_proposals(endpoints: Endpoints) -> None:
    """Also when the first was killed and left its socket file behind."""
    with closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft:
        draft.start()
        process = peer_process(endpoints, "verifier", "bind")
        wait(socket_file(endpoints.proposals).exists)
        process.kill()
        process.wait()
        assert socket_file(endpoints.proposals).exists()
        with closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier:
            verifier.start()
            wait(lambda: draft.propose(proposal(1)) or verifier.receive(0.1) is not None)


def test_a_fenced_owner_does_not_remove_the_socket_of_its_successor(endpoints: Endpoints) -> None:
    older = BusClient(endpoints, hello("verifier"), "bind")
    older.start()
    with closing_client(BusClient(endpoints, hello("verifier"), "bind")) as newer:
        newer.start()
        older.close("fenced")
        assert socket_file(endpoints.proposals).exists()
        with closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft:
            draft.start()
            wait(lambda: draft.propose(proposal(1)) or newer.receive(0.1) is not None)
