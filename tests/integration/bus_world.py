"""A context, clients and messages for the tests of the bus."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints, socket_file
from shared.bus.events import Joined
from shared.bus.messages.joining import Hello
from shared.bus.messages.sequences import Commit, Proposal, SeqState
from shared.bus.server import BusServer, Event, Peer
from tests.integration.waiting import wait_for

PATIENCE_S = 20.0
ROOT = Path(__file__).resolve().parents[2]


def hello(role: str, incarnation: int | None = None) -> Hello:
    number = time.monotonic_ns() if incarnation is None else incarnation
    return Hello.model_validate({"role": role, "incarnation": number, "pid": os.getpid()})


def accept(_hello: Hello) -> None:
    return None


def serve(server: BusServer, until: Callable[[list[tuple[Peer, Event]]], bool]) -> list[tuple[Peer, Event]]:
    seen: list[tuple[Peer, Event]] = []
    deadline = time.monotonic() + PATIENCE_S
    while not until(seen):
        assert time.monotonic() < deadline, f"waited in vain; seen: {seen}"
        seen += server.poll(0.05)
    return seen


def saw(kind: type, count: int = 1) -> Callable[[list[tuple[Peer, Event]]], bool]:
    return lambda seen: sum(isinstance(event, kind) for _, event in seen) >= count


class Context:
    """A server in a thread, as a stand-in for the context process."""

    def __init__(self, endpoints: Endpoints, generation: int = 1) -> None:
        self.server = BusServer(endpoints, time.monotonic_ns(), generation, accept)
        self.events: list[tuple[Peer, Event]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for peer, event in self.server.poll(0.02):
                self.events.append((peer, event))
                if isinstance(event, Commit):
                    tokens = list(event.tokens)
                    state = SeqState(
                        seq=event.seq,
                        epoch=event.epoch + 1,
                        kv_len=1,
                        tokens=tokens,
                        first_block=0,
                        blocks=[],
                    )
                    self.server.send(peer, state)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.server.close()


def joined(client: BusClient) -> Joined:
    event = client.receive(PATIENCE_S)
    assert isinstance(event, Joined), event
    return event


def commit(epoch: int) -> Commit:
    return Commit(seq=1, epoch=epoch, kv_len=0, written=1, tokens=[epoch])


def proposal(base: int) -> Proposal:
    return Proposal(seq=1, base=base, tokens=[1], parents=[-1], sources=[0], logq=[0.0])


class closing_client:  # noqa: N801 - reads like contextlib.closing
    def __init__(self, client: BusClient) -> None:
        self._client = client

    def __enter__(self) -> BusClient:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close("test ends")


@contextmanager
def verifier_and_draft(endpoints: Endpoints) -> Iterator[tuple[BusClient, BusClient]]:
    """Two clients, and the proposals of the second reach the first."""
    with (
        closing_client(BusClient(endpoints, hello("verifier"), "bind")) as verifier,
        closing_client(BusClient(endpoints, hello("draft"), "connect")) as draft,
    ):
        verifier.start()
        draft.start()
        wait_reached(verifier, draft)
        yield verifier, draft


def wait_reached(verifier: BusClient, draft: BusClient) -> None:
    def reached() -> bool:
        draft.propose(proposal(0))
        return verifier.receive(0.1) == proposal(0)

    wait_for(reached, "a proposal at the verifier")


def peer_process(endpoints: Endpoints, *arguments: str) -> subprocess.Popen[bytes]:
    runtime = socket_file(endpoints.control).parent
    command = [sys.executable, "-m", "tests.integration.bus_peer", str(runtime), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
