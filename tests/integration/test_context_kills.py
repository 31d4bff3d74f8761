"""What is killed or cut off comes back, and no answer or block is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import time

import pytest

from shared.bus.events import Joined
from shared.bus.messages.requests import Cancel, Finished, Tokens
from shared.bus.messages.sequences import Commit, SeqOpen
from tests.integration.context_process import verifier_hello
from tests.integration.context_world import Gateway, World, at_rest, expected, request, wait


@pytest.mark.parametrize("victim", ["context", "verifier"])
def test_killed_again_and_again_every_answer_is_the_same(world: World, victim: str) -> None:
    """kill -9 at random instants under load; afterwards no block is missing."""
    world.start("context")
    world.start("verifier")
    requests = [request(f"r{i}", prompt=10 + 9 * i, max_tokens=900) for i in range(5)]
    gateway = Gateway(world, requests)
    chance = random.Random(4)
    kills = 0
    kill_at = time.monotonic() + 0.5

    def disturb() -> None:
        nonlocal kills, kill_at
        if kills < 8 and time.monotonic() > kill_at:
            world.kill(victim)
            world.start(victim)
            kills += 1
            kill_at = time.monotonic() + 0.6 + chance.random()

    gateway.run(disturb)
    assert kills >= 3
    assert gateway.answers == {submit.request_id: expected(submit) for submit in requests}
    world.until(at_rest)
    said = world.stop("context")
    assert "inconsistent" not in said
    assert "Traceback" not in said
    assert list(world.memory.iterdir()) == []


def test_a_killed_context_goes_on_without_computing_again(world: World) -> None:
    world.start("context")
    gateway = world.gateway()
    verifier = world.client(verifier_hello(world.settings))
    prefix = wait(verifier, SeqOpen)
    for epoch, (at, written) in enumerate([(0, 16), (16, 16), (32, 5)]):
        verifier.send(Commit(seq=prefix.seq, epoch=epoch, kv_len=at, written=written, tokens=[]))
    gateway.send(request("r1", prompt=10))
    opened = wait(verifier, SeqOpen, max_tokens=60)
    assert opened.kv_len == 37
    verifier.send(Commit(seq=opened.seq, epoch=0, kv_len=37, written=10, tokens=[7]))
    assert wait(gateway, Tokens).tokens == [7]
    world.kill("context")
    world.start("context")
    again = wait(verifier, SeqOpen, seq=opened.seq)
    assert (again.kv_len, again.tokens, again.epoch) == (47, [*opened.tokens, 7], 1)
    assert again.blocks[:3] == opened.blocks[:3]
    wait(gateway, Joined)
    gateway.send(request("r1", prompt=10))
    assert wait(gateway, Tokens).tokens == [7]


def cancelled_under_a_stopped_verifier(world: World) -> subprocess.Popen[str]:
    """A request is cancelled in the middle of its answer; SIGSTOP keeps the verifier from hearing it."""
    world.start("context")
    verifier = world.start("verifier")
    gateway = Gateway(world, [request("r1", max_tokens=900)])
    wait(gateway.client, Tokens)
    verifier.send_signal(signal.SIGSTOP)
    gateway.client.send(Cancel(request_id="r1"))
    assert wait(gateway.client, Finished).reason == "cancelled"
    return verifier


def test_blocks_of_a_cancelled_request_wait_for_a_verifier_that_is_cut_off(world: World) -> None:
    """SIGSTOP makes it look lost, but it may wake up and write: its lock on the pool says so."""
    verifier = cancelled_under_a_stopped_verifier(world)
    status = world.until(lambda s: all(service.role != "verifier" for service in s.services))
    assert not at_rest(status)
    verifier.send_signal(signal.SIGCONT)
    world.until(at_rest)


def test_blocks_of_a_killed_verifier_come_back(world: World) -> None:
    cancelled_under_a_stopped_verifier(world)
    world.kill("verifier")
    world.until(at_rest)
