"""Who is gone is noticed, and who only works or pauses is not taken for gone."""

from __future__ import annotations

import signal
import time
from contextlib import closing

import zmq

from shared.bus.client import BusClient
from shared.bus.codec import encode
from shared.bus.endpoints import Endpoints
from shared.bus.events import Joined, Lost, PeerJoined, PeerLost
from shared.bus.messages.joining import Heartbeat
from shared.bus.messages.sequences import SeqClose
from shared.bus.server import BusServer
from shared.bus.sockets import readable
from tests.integration.bus_world import (
    accept,
    closing_client,
    hello,
    peer_process,
    saw,
    serve,
)
from tests.integration.waiting import wait_for


def test_a_killed_client_is_lost(endpoints: Endpoints) -> None:
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server):
        process = peer_process(endpoints, "draft")
        serve(server, saw(PeerJoined))
        process.kill()
        process.wait()
        serve(server, saw(PeerLost))
        assert server.peers == []


def test_a_silent_client_is_lost_after_three_seconds(endpoints: Endpoints) -> None:
    """Its connection is there, its process hangs."""
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server):
        process = peer_process(endpoints, "draft")
        serve(server, saw(PeerJoined))
        process.send_signal(signal.SIGSTOP)
        _, event = serve(server, saw(PeerLost))[-1]
        assert event == PeerLost("silent for 3 s")
        process.kill()
        process.wait()


def test_a_client_whose_service_is_busy_is_alive_and_says_for_how_long(endpoints: Endpoints) -> None:
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server), closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        peer, _ = serve(server, saw(PeerJoined))[-1]
        client.working(True)
        serve(server, lambda _seen: peer.busy_s > 3.5)
        assert server.peers == [peer]
        client.working(False)
        serve(server, lambda _seen: peer.busy_s == 0.0)


def test_a_stopped_server_is_noticed_and_rejoined_when_it_continues(endpoints: Endpoints) -> None:
    """SIGSTOP of a client's process for longer than liveness: both sides recover by themselves."""
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server):
        process = peer_process(endpoints, "draft")
        serve(server, saw(PeerJoined))
        process.send_signal(signal.SIGSTOP)
        serve(server, saw(PeerLost))
        process.send_signal(signal.SIGCONT)
        serve(server, saw(PeerJoined))
        process.kill()
        process.wait()


def test_a_pause_of_the_server_does_not_cost_its_living_clients(endpoints: Endpoints) -> None:
    """After a suspended machine the heartbeats wait in the queue; they are read before anybody is judged."""
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server):
        raw = zmq.Context()
        dealer = raw.socket(zmq.DEALER)
        dealer.connect(endpoints.control)
        dealer.send(encode(hello("draft")))
        serve(server, saw(PeerJoined))
        time.sleep(3.5)
        dealer.send(encode(Heartbeat()))
        wait_for(lambda: readable(server._socket), "the heartbeat")
        assert server.poll(0.1) == []
        assert len(server.peers) == 1
        dealer.close(0)
        raw.term()


def test_a_client_that_does_not_read_loses_its_session_not_its_memory(endpoints: Endpoints) -> None:
    """5000 unread messages are above the limit: the link is given up and joined anew."""
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server), closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        peer, _ = serve(server, saw(PeerJoined))[-1]
        for seq in range(1, 5001):
            server.send(peer, SeqClose(seq=seq, reason="x"))
            if seq % 500 == 0:
                server.poll(0.05)
        serve(server, lambda _seen: server.peer("verifier") not in (None, peer))
        kinds = []
        while (item := client.receive(0.3)) is not None:
            kinds.append(type(item))
        assert kinds == [Lost, Joined]
