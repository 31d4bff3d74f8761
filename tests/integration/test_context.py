"""The real context process with its real files and sockets, and what it survives."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from context_process import PLANE, answer_token, verifier_hello

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import BusRefused, Joined
from shared.bus.messages import (
    Cancel,
    Commit,
    CommitFailed,
    Finished,
    Hello,
    Message,
    PlaneFilled,
    PoolReply,
    RegisterProfile,
    Rejected,
    SeqClose,
    SeqOpen,
    SeqReleased,
    StatusReply,
    StatusRequest,
    StreamAppend,
    StreamAppended,
    Submit,
    Tokens,
)
from shared.config.load import config_hash, load_settings
from shared.kv import attach

ROOT = Path(__file__).parents[2]
PREFIX = [900 + i for i in range(37)]
WAIT_S = 20.0
M = TypeVar("M")


class World:
    """One plant in a directory of its own: processes that can be killed, and a gateway."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rl-"))
        self.memory = self.directory / "shm"
        self.config = self.directory / "ringline.toml"
        self.write_config(pool_mb=1)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.clients: list[BusClient] = []

    def write_config(self, pool_mb: int) -> None:
        self.config.write_text(
            f"""
            [paths]
            runtime = "{self.directory}/run"
            memory = "{self.memory}"
            data = "{self.directory}/data"
            [context]
            pool_mb = {pool_mb}
            max_sequences = 4
            max_waiting = 8
            [verifier]
            prefill_chunk = 16
            node_budget = 3
            """
        )
        self.settings = load_settings(self.config)

    def start(self, role: str) -> subprocess.Popen[str]:
        self.processes[role] = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("context_process.py")),
                role,
                "--config",
                str(self.config),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.processes[role]

    def kill(self, role: str) -> None:
        process = self.processes.pop(role)
        process.kill()
        process.communicate()

    def stop(self, role: str) -> str:
        """SIGTERM; returns what it said on stderr."""
        process = self.processes.pop(role)
        process.terminate()
        said = process.communicate(timeout=WAIT_S)[1]
        assert process.returncode == 0, said
        return said

    def client(self, hello: Hello) -> BusClient:
        client = BusClient(Endpoints.of(self.settings.paths), hello)
        client.start()
        self.clients.append(client)
        wait(client, Joined)
        return client

    def gateway(self) -> BusClient:
        client = self.client(self.hello("gateway"))
        client.send(RegisterProfile(profile="p", tokens=PREFIX, window=64))
        return client

    def hello(self, role: str) -> Hello:
        fields = {"role": role, "incarnation": time.monotonic_ns(), "pid": os.getpid()}
        return Hello.model_validate({**fields, "config_hash": config_hash(self.settings)})

    def status(self) -> StatusReply:
        client = self.client(self.hello("status"))
        client.send(StatusRequest())
        reply = wait(client, StatusReply)
        client.close("done")
        self.clients.remove(client)
        return reply

    def until(self, holds: Callable[[StatusReply], bool]) -> StatusReply:
        deadline = time.monotonic() + WAIT_S
        while not holds(reply := self.status()):
            assert time.monotonic() < deadline, reply
            time.sleep(0.05)
        return reply

    def close(self) -> None:
        for client in self.clients:
            client.close("done")
        for role in list(self.processes):
            self.kill(role)
        shutil.rmtree(self.directory)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def wait(client: BusClient, kind: type[M], **fields: object) -> M:
    """The next event of that kind with those fields; what comes before it is passed over."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        item = client.receive(0.5)
        if isinstance(item, kind) and all(getattr(item, name) == value for name, value in fields.items()):
            return item
    raise AssertionError(f"no {kind.__name__} {fields} came")


def at_rest(status: StatusReply) -> bool:
    """No block is held by anything but pins and the prefix cache."""
    return status.blocks_free + status.blocks_pinned + status.blocks_cached == status.blocks_total


def request(name: str, prompt: int = 30, max_tokens: int = 60, severity: int = 1) -> Submit:
    tokens = PREFIX + [1 + (sum(name.encode()) + i) % 800 for i in range(prompt)]
    return Submit(
        request_id=name, profile="p", tokens=tokens, max_tokens=max_tokens, stop_tokens=[0], severity=severity
    )


def expected(submit: Submit) -> list[int]:
    tokens = list(submit.tokens)
    for _ in range(submit.max_tokens):
        tokens.append(answer_token(tokens))
    return tokens[len(submit.tokens) :]


class Gateway:
    """Does what the real one does: registers and submits again after each Joined, joins tokens by index."""

    def __init__(self, world: World, requests: list[Submit]) -> None:
        self.open = {submit.request_id: submit for submit in requests}
        self.answers: dict[str, list[int]] = {name: [] for name in self.open}
        self.refused: list[str] = []
        self.client = world.gateway()
        for submit in requests:
            self.client.send(submit)

    def run(self, disturb: Callable[[], None] = lambda: None) -> None:
        deadline = time.monotonic() + 4 * WAIT_S
        while self.open:
            assert time.monotonic() < deadline, f"unanswered: {sorted(self.open)}"
            self.read(self.client.receive(0.2))
            disturb()

    def read(self, item: object) -> None:
        match item:
            case Joined():
                self.client.send(RegisterProfile(profile="p", tokens=PREFIX, window=64))
                for submit in self.open.values():
                    self.client.send(submit)
            case Tokens():
                answer = self.answers[item.request_id]
                assert item.index <= len(answer)
                answer[item.index :] = item.tokens
            case Rejected():
                assert item.retry_after_s is not None, item.reason
                self.refused.append(item.request_id)
                del self.open[item.request_id]
            case Finished():
                assert item.reason == "length", item
                self.open.pop(item.request_id, None)


def test_requests_are_answered_and_a_clean_stop_leaves_nothing(world: World) -> None:
    world.start("context")
    world.start("verifier")
    requests = [request(f"r{i}") for i in range(6)]
    gateway = Gateway(world, requests)
    gateway.run()
    assert gateway.answers == {submit.request_id: expected(submit) for submit in requests}
    status = world.until(at_rest)
    assert status.blocks_pinned == 3
    assert {service.role for service in status.services} == {"context", "verifier", "gateway"}
    said = world.stop("context")
    assert list(world.memory.iterdir()) == []
    assert "inconsistent" not in said
    assert "Traceback" not in said


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


def test_blocks_of_a_cancelled_request_wait_for_a_verifier_that_is_cut_off(world: World) -> None:
    """SIGSTOP makes it look lost, but it may wake up and write: its lock on the pool says so."""
    world.start("context")
    verifier = world.start("verifier")
    gateway = Gateway(world, [request("r1", max_tokens=900)])
    wait(gateway.client, Tokens)
    verifier.send_signal(signal.SIGSTOP)
    gateway.client.send(Cancel(request_id="r1"))
    assert wait(gateway.client, Finished).reason == "cancelled"
    status = world.until(lambda s: all(service.role != "verifier" for service in s.services))
    assert not at_rest(status)
    verifier.send_signal(signal.SIGCONT)
    world.until(at_rest)


def test_blocks_of_a_killed_verifier_come_back(world: World) -> None:
    world.start("context")
    verifier = world.start("verifier")
    gateway = Gateway(world, [request("r1", max_tokens=900)])
    wait(gateway.client, Tokens)
    verifier.send_signal(signal.SIGSTOP)
    gateway.client.send(Cancel(request_id="r1"))
    wait(gateway.client, Finished)
    world.kill("verifier")
    world.until(at_rest)


def test_a_flood_is_answered_or_refused_and_never_forgotten(world: World) -> None:
    world.start("context")
    world.start("verifier")
    requests = [request(f"r{i}", max_tokens=8, severity=i % 4) for i in range(100)]
    gateway = Gateway(world, requests)
    gateway.run()
    assert gateway.refused
    answered = [submit for submit in requests if submit.request_id not in gateway.refused]
    assert all(gateway.answers[submit.request_id] == expected(submit) for submit in answered)
    assert len(answered) >= world.settings.context.max_waiting
    assert {submit.severity for submit in answered if submit.request_id != "r0"} == {3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("config_hash", "other"),
        ("model_hash", "sha-other"),
        ("vocabulary_hash", "v2"),
        ("plane", "9 layers x 1 heads x 32, f16"),
    ],
)
def test_a_verifier_that_does_not_belong_here_is_told_which_field(
    world: World, field: str, value: str
) -> None:
    world.start("context")
    with pytest.raises(BusRefused, match=f"{field} is {value}, expected") as caught:
        world.client(verifier_hello(world.settings, **{field: value}))
    assert "configuration" in str(caught.value)


def test_a_draft_with_a_model_is_refused_where_there_is_no_draft_plane(world: World) -> None:
    world.start("context")
    hello = world.hello("draft")
    with pytest.raises(BusRefused, match="plane"):
        world.client(hello.model_copy(update={"model_hash": "x", "plane": "1 layers"}))
    world.client(hello)


def test_senseless_messages_change_nothing(world: World) -> None:
    """From every role, in every order: context goes on and its books are right."""
    world.start("context")
    gateway = world.gateway()
    verifier = world.client(verifier_hello(world.settings))
    draft = world.client(world.hello("draft"))
    chance = random.Random(7)

    def number() -> int:
        return chance.choice([0, 1, 2, 16, 37, 1 << 20, (1 << 53) - 1])

    for _ in range(300):
        seq = max(1, number() % 8)
        tokens = [chance.randrange(2**31) for _ in range(chance.randrange(4))]
        messages: list[Message] = [
            Commit(seq=seq, epoch=number(), kv_len=number(), written=number(), tokens=tokens),
            CommitFailed(seq=seq, epoch=number(), reason="?"),
            PlaneFilled(seq=seq, kv_len=number()),
            SeqReleased(seq=seq),
            SeqClose(seq=seq, reason="?"),
            RegisterProfile(profile=f"x{number()}", tokens=tokens, window=number()),
            Submit(
                request_id=f"q{seq}", profile=f"x{number()}", tokens=tokens, max_tokens=9, stop_tokens=tokens
            ),
            Cancel(request_id=f"q{seq}"),
            StatusRequest(),
        ]
        chance.choice([gateway, verifier, draft]).send(chance.choice(messages))
    verifier.send(Commit(seq=1, epoch=0, kv_len=0, written=1, tokens=[]))
    assert world.status().blocks_total > 0
    said = world.stop("context")
    assert "Traceback" not in said
    assert "inconsistent" not in said


def test_ringline_pool_shows_whose_the_blocks_are(world: World) -> None:
    world.start("context")
    gateway = world.gateway()
    world.start("verifier")
    world.until(lambda s: s.blocks_pinned == 3)
    gateway.send(StreamAppend(stream="line 3", profile="p", serial=1, tokens=[7] * 50))
    wait(gateway, StreamAppended, serial=1)
    world.until(lambda s: s.sequences[0].kv_len == 87)
    command = [sys.executable, "-m", "services.launcher", "pool", "--config", str(world.config)]
    run = partial(subprocess.run, capture_output=True, text=True, timeout=WAIT_S, check=True, cwd=ROOT)
    reply = PoolReply.model_validate_json(run([*command, "--json"]).stdout)
    assert [(s.kind, s.name, s.known, s.ring_position) for s in reply.sequences] == [
        ("prefix", "p", 37, 0),
        ("stream", "line 3", 87, 50),
    ]
    used = reply.blocks_cached + reply.blocks_pinned + reply.blocks_private + reply.blocks_shared
    assert reply.blocks_free + used == reply.blocks_total
    assert (reply.blocks_pinned, reply.blocks_private) == (3, 4)
    shown = run(command, env={**os.environ, "COLUMNS": "160"}).stdout
    assert "stream" in shown
    assert "line 3" in shown
    assert "prefix cache: " in shown


def test_a_second_context_is_refused_with_one_line(world: World) -> None:
    world.start("context")
    world.status()
    second = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("context_process.py")),
            "context",
            "--config",
            world.config,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert "owned by another context service" in second.stderr
    assert world.status().blocks_total > 0


def test_another_pool_size_replaces_what_a_killed_context_left(world: World) -> None:
    world.start("context")
    before = world.status()
    world.kill("context")
    world.write_config(pool_mb=2)
    world.start("context")
    after = world.status()
    assert after.blocks_total == 2 * before.blocks_total
    assert after.generation != before.generation
    assert attach(world.memory, "verifier", PLANE).pool.n_blocks == after.blocks_total
    assert world.stop("context").count("replaced") == 1


def test_a_pool_larger_than_shared_memory_is_one_line(world: World) -> None:
    world.write_config(pool_mb=1 << 20)
    process = world.start("context")
    said = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "MB free: lower context.pool_mb" in said
