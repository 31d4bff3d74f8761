"""Joining the bus: order, restarts, fences, refusals."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
import zmq

from shared.bus.client import BusClient
from shared.bus.codec import encode
from shared.bus.endpoints import Endpoints
from shared.bus.events import BusRefused, Lost, PeerJoined, PeerLost
from shared.bus.messages.joining import PROTOCOL_MAJOR, Goodbye, Refused
from shared.bus.messages.sequences import Commit, SeqClose, SeqState
from shared.bus.server import BusServer
from tests.integration.bus_world import (
    PATIENCE_S,
    Context,
    accept,
    closing_client,
    commit,
    hello,
    joined,
    saw,
    serve,
)
from tests.integration.waiting import wait_for


def test_clients_may_start_before_the_server(endpoints: Endpoints) -> None:
    with closing_client(BusClient(endpoints, hello("draft"))) as client:
        client.start()
        assert client.receive(0.3) is None
        with closing(Context(endpoints, generation=7)):
            assert joined(client).welcome.generation == 7


def test_the_first_messages_after_joining_are_not_lost(endpoints: Endpoints) -> None:
    """Both ways: what the server sends on PeerJoined, and what the client sends on Joined."""
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server), closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        peer, _ = serve(server, saw(PeerJoined))[-1]
        for seq in range(1, 101):
            server.send(peer, SeqClose(seq=seq, reason="first"))
        joined(client)
        client.send(commit(5))
        assert [client.receive(PATIENCE_S) for _ in range(100)] == [
            SeqClose(seq=seq, reason="first") for seq in range(1, 101)
        ]
        assert serve(server, saw(Commit))[-1][1] == commit(5)


def test_messages_keep_their_order(endpoints: Endpoints) -> None:
    with closing(Context(endpoints)), closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        joined(client)
        for epoch in range(500):
            client.send(commit(epoch))
        states = [client.receive(PATIENCE_S) for _ in range(500)]
        assert [state.epoch for state in states if isinstance(state, SeqState)] == list(range(1, 501))


def test_clients_rejoin_a_restarted_server(endpoints: Endpoints) -> None:
    with closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        for generation in (1, 2, 3):
            with closing(Context(endpoints, generation)):
                assert joined(client).welcome.generation == generation
                client.send(commit(generation))
                assert isinstance(client.receive(PATIENCE_S), SeqState)
            assert isinstance(client.receive(PATIENCE_S), Lost)


def test_nothing_meant_for_the_old_session_reaches_the_new_one(endpoints: Endpoints) -> None:
    """The service has not read Lost yet and sends on: that message is dropped, not delivered late."""
    with closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        first = Context(endpoints)
        joined(client)
        first.close()
        with closing(Context(endpoints)) as second:
            wait_for(lambda: any(isinstance(event, PeerJoined) for _, event in second.events), "its Hello")
            client.send(commit(1))
            assert isinstance(client.receive(PATIENCE_S), Lost)
            joined(client)
            client.send(commit(2))
            wait_for(lambda: any(isinstance(event, Commit) for _, event in second.events), "a commit")
            assert [event for _, event in second.events if isinstance(event, Commit)] == [commit(2)]
            assert client.dropped == 1


def test_what_is_sent_between_a_loss_and_the_next_join_counts_as_dropped(endpoints: Endpoints) -> None:
    """Context is gone, the service does not know it yet, and nobody is there to take its message."""
    with closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        first = Context(endpoints)
        joined(client)
        first.close()
        wait_for(lambda: len(client._inbox._items) == 1, "Lost, which the service has not read")
        client.send(commit(1))
        with closing(Context(endpoints)):
            assert isinstance(client.receive(PATIENCE_S), Lost)
            joined(client)
            client.send(commit(2))
            assert isinstance(client.receive(PATIENCE_S), SeqState)
            assert client.dropped == 1


def test_a_restarted_client_has_a_new_identity_and_is_served(endpoints: Endpoints) -> None:
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server):
        identities = set()
        for _ in range(3):
            with closing_client(BusClient(endpoints, hello("draft"))) as client:
                client.start()
                peer, _ = serve(server, saw(PeerJoined))[-1]
                identities.add(peer.identity)
            peer, event = serve(server, saw(PeerLost))[-1]
            assert event == PeerLost("test ends")
        assert len(identities) == 3


def test_a_newer_incarnation_fences_the_older_one(endpoints: Endpoints) -> None:
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server), closing_client(BusClient(endpoints, hello("draft", 10))) as older:
        older.start()
        serve(server, saw(PeerJoined))
        joined(older)
        with closing_client(BusClient(endpoints, hello("draft", 11))) as newer:
            newer.start()
            seen = serve(server, saw(PeerJoined))
            assert [type(event) for _, event in seen] == [PeerLost, PeerJoined]
            with pytest.raises(BusRefused, match="incarnation"):
                older.receive(PATIENCE_S)
            current = server.peer("draft")
            assert current is not None
            assert current.incarnation == 11


def test_an_older_incarnation_is_refused(endpoints: Endpoints) -> None:
    with closing(Context(endpoints)), closing_client(BusClient(endpoints, hello("draft", 11))) as newer:
        newer.start()
        joined(newer)
        with closing_client(BusClient(endpoints, hello("draft", 10))) as older:
            older.start()
            with pytest.raises(BusRefused, match="a newer draft has taken its place"):
                older.receive(PATIENCE_S)
        assert newer.receive(0.3) is None


def test_a_refusal_names_field_values_and_what_to_do(endpoints: Endpoints) -> None:
    refused = Refused(field="vocabulary_hash", expected="aa", got="bb", hint="use a draft of the same family")
    server = BusServer(endpoints, 1, 1, lambda _hello: refused)
    with closing(server), closing_client(BusClient(endpoints, hello("draft"))) as client:
        client.start()
        serving = threading.Thread(target=server.poll, args=(1.0,))
        serving.start()
        with pytest.raises(BusRefused) as caught:
            client.receive(PATIENCE_S)
        assert str(caught.value) == (
            "context refuses this service: vocabulary_hash is bb, expected aa: use a draft of the same family"
        )
        serving.join()


def test_an_unknown_major_is_refused_with_both_versions(endpoints: Endpoints) -> None:
    other = hello("draft").model_copy(update={"protocol_major": 9})
    with closing(Context(endpoints)), closing_client(BusClient(endpoints, other)) as client:
        client.start()
        with pytest.raises(BusRefused, match=f"protocol_major is 9, expected {PROTOCOL_MAJOR}"):
            client.receive(PATIENCE_S)


def test_any_number_of_status_clients_may_join(endpoints: Endpoints) -> None:
    with closing(Context(endpoints)) as context:
        clients = [BusClient(endpoints, hello("status")) for _ in range(5)]
        for client in clients:
            client.start()
        for client in clients:
            joined(client)
        # One that was silent for too long has to join again.
        wait_for(lambda: len(context.server.peers) == 5, "all five at once")
        for client in clients:
            client.close("test ends")


def test_messages_of_a_client_that_has_not_joined_are_answered_with_goodbye(endpoints: Endpoints) -> None:
    server = BusServer(endpoints, 1, 1, accept)
    with closing(server):
        raw = zmq.Context()
        dealer = raw.socket(zmq.DEALER)
        dealer.connect(endpoints.control)
        dealer.send(encode(commit(1)))
        dealer.send(b"\x04garbage")
        assert server.poll(0.5) == []
        assert dealer.poll(2000)
        assert dealer.recv() == encode(Goodbye(reason="not joined"))
        assert server.dropped == 1
        dealer.close(0)
        raw.term()


def test_round_trips_are_measured(
    endpoints: Endpoints, record_property: Callable[[str, object], None]
) -> None:
    with closing(Context(endpoints)), closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        joined(client)
        times = []
        for epoch in range(300):
            start = time.perf_counter()
            client.send(commit(epoch))
            assert isinstance(client.receive(PATIENCE_S), SeqState)
            times.append(time.perf_counter() - start)
        record_property("round_trip_ms", statistics.median(times) * 1000)
