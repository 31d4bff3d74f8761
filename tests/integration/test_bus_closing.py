"""Socket files are private and do not stay; closing never hangs and loses nothing."""

from __future__ import annotations

import socket
import stat
from contextlib import closing

import pytest

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints, socket_file
from shared.bus.events import PeerJoined, PeerLost
from shared.bus.messages.sequences import PlaneFilled
from shared.bus.server import BusServer
from tests.integration.bus_world import (
    Context,
    accept,
    closing_client,
    hello,
    joined,
    proposal,
    saw,
    serve,
)
from tests.integration.waiting import wait_for


def test_leftover_files_are_replaced_and_removed(endpoints: Endpoints) -> None:
    path = socket_file(endpoints.control)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with closing(Context(endpoints)), closing_client(BusClient(endpoints, hello("draft"))) as client:
        client.start()
        joined(client)
    assert list(path.parent.iterdir()) == []


def test_socket_files_are_private(endpoints: Endpoints) -> None:
    with (
        closing(Context(endpoints)),
        closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier,
    ):
        verifier.start()
        for endpoint in (endpoints.control, endpoints.proposals):
            assert stat.S_IMODE(socket_file(endpoint).stat().st_mode) == 0o600


@pytest.mark.parametrize("started", [True, False])
def test_closing_never_hangs_without_a_server(endpoints: Endpoints, started: bool) -> None:
    """pytest's timeout is the judge: a lingering socket would hang the process for ever."""
    client = BusClient(endpoints, hello("draft"), "connect")
    if started:
        client.start()
        client.propose(proposal(1))
    client.close("test ends")
    client.send(PlaneFilled(seq=1, kv_len=1))


def test_closing_never_hangs_on_a_stopped_server(endpoints: Endpoints) -> None:
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server):
        client = BusClient(endpoints, hello("draft"))
        client.start()
        serve(server, saw(PeerJoined))
        joined(client)
        for seq in range(1, 2000):
            client.send(PlaneFilled(seq=seq, kv_len=1))
        client.close("nobody reads")


def test_what_was_sent_before_closing_arrives(endpoints: Endpoints) -> None:
    with closing(Context(endpoints)) as context:
        client = BusClient(endpoints, hello("draft"))
        client.start()
        joined(client)
        for seq in range(1, 101):
            client.send(PlaneFilled(seq=seq, kv_len=1))
        client.close("done")
        wait_for(lambda: any(event == PeerLost("done") for _, event in context.events), "its goodbye")
        assert sum(isinstance(event, PlaneFilled) for _, event in context.events) == 100
