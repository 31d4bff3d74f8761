"""A plant around the real context process, and a gateway that does what the real one does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import Joined
from shared.bus.messages.joining import Hello
from shared.bus.messages.requests import Finished, RegisterProfile, Rejected, Submit, Tokens
from shared.bus.messages.status import StatusReply, StatusRequest
from shared.config.load import config_hash, load_settings
from tests.integration.context_process import answer_token

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

    def write_config(self, pool_mb: int, kv: str = "f16") -> None:
        self.config.write_text(
            f"""
            [paths]
            runtime = "{self.directory}/run"
            memory = "{self.memory}"
            data = "{self.directory}/data"
            [context]
            pool_mb = {pool_mb}
            kv = "{kv}"
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
