"""Context, verifier and draft as real processes, and a gateway that only submits and collects tokens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import Joined, Lost
from shared.bus.messages.joining import Hello
from shared.bus.messages.requests import (
    GREEDY,
    Finished,
    RegisterProfile,
    Rejected,
    Sampling,
    StreamAppend,
    StreamAppended,
    StreamClose,
    StreamRefused,
    Submit,
    Tokens,
)
from shared.bus.messages.status import (
    PoolReply,
    PoolRequest,
    PoolSequence,
    ServiceStatus,
    StatusReply,
    StatusRequest,
)
from shared.config.load import config_hash, load_settings
from tests.integration.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
SERVICES = ("context", "verifier", "draft")


def own_data(directory: Path) -> Path:
    """A data directory with the checkout's models and weight caches, and nothing else of it."""
    data = directory / "data"
    data.mkdir(exist_ok=True, mode=0o700)
    for name in ("models", "cache"):
        (ROOT / ".ringline" / name).mkdir(parents=True, exist_ok=True)
        if not (data / name).exists():
            (data / name).symlink_to(ROOT / ".ringline" / name)
    return data


@dataclass
class Answer:
    """What came back for a request; `finished` is None while it streams."""

    tokens: list[int] = field(default_factory=list)
    finished: Finished | None = None


class SpeculationPlant:
    """`draft`: the sources, or none to run without the draft service."""

    def __init__(
        self,
        directory: Path,
        threads: int = 2,
        sources: tuple[str, ...] = (),
        draft_model: str = "smollm2-135m",
        pool_mb: int = 160,
        max_sequences: int = 8,
    ) -> None:
        self._log = directory / "services.log"
        self._runtime = Path(tempfile.mkdtemp(prefix="rl"))
        self._memory = Path("/dev/shm") / self._runtime.name
        self._config = directory / "ringline.toml"
        quoted = ", ".join(f'"{source}"' for source in sources or ("retrieval",))
        self._config.write_text(
            f'[paths]\nruntime = "{self._runtime}/run"\nmemory = "{self._memory}"\n'
            f'data = "{own_data(directory)}"\n'
            f'[models]\ntarget = "smollm2-135m"\ndraft = "{draft_model}"\n'
            f"[context]\npool_mb = {pool_mb}\nmax_sequences = {max_sequences}\n"
            f"[verifier]\nthreads = {threads}\n[draft]\nsources = [{quoted}]\n"
        )
        self._settings = load_settings(self._config)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.answers: dict[str, Answer] = {}
        self._submits: dict[str, Submit] = {}
        self._profile: RegisterProfile | None = None
        self.appended: dict[str, int] = {}  # serial by stream
        self._again: StreamAppend | None = None  # until it is acknowledged
        self.disturb: Callable[[], None] = lambda: None  # called while something is waited for
        self._services = SERVICES if sources else SERVICES[:2]
        endpoints = Endpoints.of(self._settings.paths)
        digest = config_hash(self._settings)
        hello = Hello(role="gateway", incarnation=time.monotonic_ns(), pid=os.getpid(), config_hash=digest)
        self._bus = BusClient(endpoints, hello)
        status = Hello(role="status", incarnation=time.monotonic_ns(), pid=os.getpid())
        self._status = BusClient(endpoints, status)

    def __enter__(self) -> SpeculationPlant:
        for name in self._services:
            self.start(name)
        self._bus.start()
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bus.close("done")
        self._status.close("done")
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            process.wait(20)
        shutil.rmtree(self._runtime, ignore_errors=True)
        left = sorted(self._memory.glob("*")) if self._memory.exists() else []
        shutil.rmtree(self._memory, ignore_errors=True)
        assert not left, f"left in shared memory: {left}"

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", f"services.{name}", "--config", str(self._config)]
        with self._log.open("ab") as log:
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log)

    def pause(self, name: str, seconds: float) -> None:
        """Stop a process for a while, less than it takes to be missed."""
        self.processes[name].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.processes[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """kill -9."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait(20)

    def log(self) -> str:
        return self._log.read_text()

    def wait_joined(self, *roles: str) -> None:
        """Until these services are alive for context."""
        wait_for(
            lambda: set(roles) <= {service.role for service in self._alive()}, f"{roles} at context", self.log
        )

    def _alive(self) -> list[ServiceStatus]:
        self._status.send(StatusRequest())
        item = self._status.receive(0.5)
        return [s for s in item.services if s.alive] if isinstance(item, StatusReply) else []

    def register(self, tokens: list[int], window: int = 256) -> None:
        self._profile = RegisterProfile(profile="p", tokens=tokens, window=window)
        self._bus.send(self._profile)

    def submit(
        self,
        name: str,
        tokens: list[int],
        max_tokens: int,
        stop: tuple[int, ...] = (),
        severity: int = 1,
        stream: str = "",
        sampling: Sampling = GREEDY,
    ) -> None:
        submit = Submit(
            request_id=name,
            profile="p",
            tokens=tokens,
            max_tokens=max_tokens,
            stop_tokens=list(stop),
            severity=severity,
            stream=stream,
            sampling=sampling,
        )
        self._submits[name] = submit
        self.answers[name] = Answer()
        self._bus.send(submit)

    def append(self, stream: str, serial: int, tokens: list[int]) -> None:
        """Until the append is acknowledged; refused ones are sent again."""
        message = StreamAppend(stream=stream, profile="p", serial=serial, tokens=tokens)
        self._bus.send(message)
        self._again = message
        self._wait(lambda: self.appended.get(stream, -1) >= serial)
        self._again = None

    def close_stream(self, stream: str) -> None:
        self._bus.send(StreamClose(stream=stream))

    def wait_computed(self, stream: str) -> PoolSequence:
        """Until nothing of the stream is pending."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [s for s in self.pool().sequences if s.name == stream and s.known == s.kv_len]
            if found:
                return found[0]
            assert time.monotonic() < deadline, f"not computed: {self.pool()}"
            self._take(0.02)

    def pool(self) -> PoolReply:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self._status.send(PoolRequest())
            item = self._status.receive(0.5)
            if isinstance(item, PoolReply):
                return item
        raise AssertionError(self.log())

    def wait_tokens(self, name: str, n: int) -> None:
        """Until an answer has at least n tokens."""
        self._wait(lambda: len(self.answers[name].tokens) >= n)

    def wait_finished(self, *names: str) -> None:
        self._wait(lambda: all(self.answers[name].finished for name in names))

    def _wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"no answer; the services say:\n{self.log()}"
            self._take(0.1)

    def _take(self, timeout_s: float) -> None:
        self.disturb()
        match self._bus.receive(timeout_s):
            case Joined():
                self._say_again()
            case Tokens(request_id=name, index=index, tokens=tokens):
                answer = self.answers[name].tokens
                assert index <= len(answer), "a gap in the answer"
                assert answer[index : index + len(tokens)] == tokens[: len(answer) - index]
                answer += tokens[len(answer) - index :]
            case StreamAppended(stream=stream, serial=serial):
                self.appended[stream] = serial
            case StreamRefused(retry_after_s=retry) as refused:
                assert retry is not None, refused
                time.sleep(0.05)
                self._bus.send(self._again or refused)
            case Finished() as finished:
                self.answers[finished.request_id].finished = finished
            case Rejected() as rejected:
                raise AssertionError(rejected)
            case Lost() | None | _:
                pass

    def _say_again(self) -> None:
        if self._profile is not None:
            self._bus.send(self._profile)
        if self._again is not None:
            self._bus.send(self._again)
        for name, submit in self._submits.items():
            if self.answers[name].finished is None:
                self._bus.send(submit)

    def wait_welcome(self) -> None:
        item = self._bus.receive(PATIENCE_S)
        assert isinstance(item, Joined), self.log()
        assert isinstance(self._status.receive(PATIENCE_S), Joined)
