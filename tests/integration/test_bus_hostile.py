"""Whatever bytes arrive at the sockets, the bus goes on and its log stays small."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgpack
import pytest
import zmq
from structlog.testing import capture_logs

from shared.bus.client import BusClient
from shared.bus.codec import MAX_FRAME, MAX_SMALL, decode, encode
from shared.bus.endpoints import Endpoints
from shared.bus.events import Lost
from shared.bus.messages.joining import PROTOCOL_MAJOR, Hello, Refused
from shared.bus.server import BusServer
from tests.integration.bus_world import Context, accept, closing_client, hello, joined, proposal, wait_reached
from tests.integration.waiting import wait_for

VERSIONS: list[object] = [PROTOCOL_MAJOR - 1, PROTOCOL_MAJOR + 1, 2**64 - 1, -1, 1.0, None, "x", {}]
NESTED = b"\x91" * 1000 + b"\x90"


def hello_of_version(packed: bytes) -> bytes:
    """A Hello whose protocol_major is this msgpack value."""
    return b"\x01\x81" + bytes(msgpack.packb("protocol_major")) + packed


def text(size: int) -> bytes:
    return bytes(msgpack.packb("A" * size))


HOSTILE: dict[str, list[bytes]] = {
    "a version as long as a frame": [hello_of_version(text(MAX_FRAME - 40))],
    "a version as long as a small frame": [hello_of_version(text(MAX_SMALL - 40))],
    "a nested version": [hello_of_version(NESTED)],
    "other versions": [hello_of_version(msgpack.packb(v)) for v in VERSIONS],
    "every type, empty and nested": [
        bytes((code,)) + body for code in range(256) for body in (b"", b"\x80", NESTED)
    ],
    "noise": [random.Random(7).randbytes(size % 300) for size in range(2000)],
    "a frame above the limit": [os.urandom(MAX_FRAME + 1)],
    "a Hello with a long name": [
        b"\x01" + msgpack.packb(hello("status").model_dump() | {"plane": "p" * 60_000})
    ],
}
hostile = pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE)


@contextmanager
def raw(endpoint: str, kind: int) -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    socket = context.socket(kind)
    socket.connect(endpoint)
    try:
        yield socket
    finally:
        socket.close(500)
        context.term()


def read(socket: zmq.Socket[bytes], patience_ms: int = 300) -> list[Any]:
    """The answers; none comes for a while."""
    answers = []
    while socket.poll(patience_ms):
        answers.append(decode(socket.recv()))
    return answers


@hostile
def test_context_goes_on(endpoints: Endpoints, frames: list[bytes]) -> None:
    """It still welcomes, and whoever is joined stays joined."""
    with closing(Context(endpoints)), closing_client(BusClient(endpoints, hello("verifier"))) as client:
        client.start()
        joined(client)
        with raw(endpoints.control, zmq.DEALER) as socket:
            for frame in frames:
                socket.send(frame)
            read(socket)
        with closing_client(BusClient(endpoints, hello("draft"))) as other:
            other.start()
            joined(other)
        assert client.receive(0.1) is None


@hostile
def test_the_verifier_goes_on(endpoints: Endpoints, frames: list[bytes]) -> None:
    with closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier:
        verifier.start()
        with raw(endpoints.proposals, zmq.PUSH) as socket:
            for frame in frames:
                socket.send(frame)
        with closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft:
            draft.start()
            wait_reached(verifier, draft)


@hostile
def test_a_client_of_a_hostile_server_goes_on(endpoints: Endpoints, frames: list[bytes]) -> None:
    """It takes what is no answer for nothing, and joins when context is back."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(endpoints.control)
    with closing_client(BusClient(endpoints, hello("draft"))) as client:
        client.start()
        identity, _ = router.recv_multipart()
        for frame in frames:
            if frame[:1] != b"\x03":  # Refused ends a client, that is its meaning
                router.send_multipart([identity, frame])
        time.sleep(0.3)
        router.close(0)
        context.term()
        with closing(Context(endpoints)):
            event = client.receive(20)
            while isinstance(event, Lost) or event is None:
                event = client.receive(20)


def test_a_version_that_is_a_number_is_answered_whatever_it_is(endpoints: Endpoints) -> None:
    with closing(Context(endpoints)), raw(endpoints.control, zmq.DEALER) as socket:
        socket.send(hello_of_version(msgpack.packb(2**64 - 1)))
        (refused,) = read(socket)
        assert isinstance(refused, Refused)
        assert refused.got == str(2**64 - 1)


def test_a_refusal_that_quotes_a_long_name_is_sent(endpoints: Endpoints) -> None:
    """As context's check makes them."""

    def refuse(greeting: Hello) -> Refused:
        return Refused(field="plane", expected="e" * MAX_FRAME, got=greeting.plane, hint="h" * MAX_FRAME)

    server = BusServer(endpoints, 1, 1, refuse)
    with closing(server), raw(endpoints.control, zmq.DEALER) as socket:
        socket.send(encode(hello("draft").model_copy(update={"plane": "p" * 128})))
        server.poll(1.0)
        (refused,) = read(socket)
        assert isinstance(refused, Refused)
        assert refused.got == "p" * 128


def logged_by(action: Callable[[], object]) -> list[Any]:
    with capture_logs() as lines:
        action()
    return list(lines)


def test_frames_that_are_no_messages_are_few_short_lines_in_contexts_log(endpoints: Endpoints) -> None:
    server = BusServer(endpoints, 1, 1, accept)

    def flood() -> None:
        with raw(endpoints.control, zmq.DEALER) as socket:
            for _ in range(1000):
                socket.send(b"\x04\x81" + text(60_000) + b"\x01")
            while server.dropped < 1000:
                server.poll(0.1)

    with closing(server):
        lines = logged_by(flood)
    assert len(lines) == 1
    assert len(str(lines)) < 1000


def test_frames_that_are_no_proposals_are_few_short_lines_in_the_verifiers_log(endpoints: Endpoints) -> None:
    with closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier:
        verifier.start()

        def flood() -> None:
            with raw(endpoints.proposals, zmq.PUSH) as socket:
                for _ in range(1000):
                    socket.send(hello_of_version(text(60_000)))
                socket.send(encode(proposal(1)))
                wait_for(lambda: verifier.receive(0.1) == proposal(1), "the proposal behind them")

        lines = logged_by(flood)
    assert len(lines) == 1
    assert len(str(lines)) < 1000
