"""Context, verifier and draft as users run them, and a client in the place of the gateway that measures."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.workloads import Question, Workload
from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import Joined, Lost
from shared.bus.messages.joining import Hello
from shared.bus.messages.requests import Finished, RegisterProfile, Rejected, Submit, Tokens
from shared.bus.messages.status import StatusReply, StatusRequest
from shared.config.errors import RinglineError
from shared.config.load import config_hash, load_settings

_START_S = 60.0
_ANSWER_S = 120.0  # without a token
_STOP_S = 20.0


@dataclass
class Timed:
    """An answer as its reader saw it. Times are monotonic seconds; `pieces`: arrival and number of tokens."""

    question: Question
    submitted: float
    tokens: list[int] = field(default_factory=list)
    pieces: list[tuple[float, int]] = field(default_factory=list)
    ended: float = 0.0


@dataclass(frozen=True)
class Setup:
    """A plant. `commands`: what is run instead of a service of that name, without `--config FILE`."""

    name: str
    data: Path  # models and weight caches
    target: str
    draft: str | None
    threads: int
    sources: tuple[str, ...] = ()  # of drafts; empty: no draft service
    verifier: dict[str, Any] = field(default_factory=dict)  # settings
    commands: dict[str, list[str]] = field(default_factory=dict)
    name_of_model: str = "cpu"  # in reports: what the draft model's nodes come from
    kill_draft_s: float = 0.0  # mean time after which the draft service is killed; 0: never


class Plant:
    """Processes from `__enter__` to `__exit__`. RinglineError when one of them does not do its part.

    `home` is where it keeps its data (history included); it outlives the plant.
    """

    def __init__(self, setup: Setup, home: Path) -> None:
        self.setup = setup
        self._home = home
        self._runtime = Path(tempfile.mkdtemp(prefix="rl"))
        self._memory = Path("/dev/shm") / self._runtime.name
        self._log = home / "services.log"
        self._link_models()
        config = home / "ringline.toml"
        config.write_text(_config(setup, home, self._runtime / "run", self._memory), encoding="utf-8")
        self._config = config
        self._settings = load_settings(config)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cpu_of_killed: dict[str, float] = defaultdict(float)
        self.kills = 0
        self._random = random.Random(0)
        self._kill_at = self._next_kill()
        endpoints = Endpoints.of(self._settings.paths)
        digest = config_hash(self._settings)
        now = time.monotonic_ns()
        self._bus = BusClient(
            endpoints, Hello(role="gateway", incarnation=now, pid=os.getpid(), config_hash=digest)
        )
        self._status = BusClient(endpoints, Hello(role="status", incarnation=now, pid=os.getpid()))

    def __enter__(self) -> Plant:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._bus.close("done")
        self._status.close("done")
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_S)
        shutil.rmtree(self._runtime, ignore_errors=True)
        shutil.rmtree(self._memory, ignore_errors=True)

    def _link_models(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("models", "cache"):
            link = self._home / name
            if not link.is_symlink():
                link.symlink_to((self.setup.data / name).absolute())

    def _start(self) -> None:
        services = ["context", "verifier", *(["draft"] if self.setup.sources else [])]
        for name in services:
            self._spawn(name)
        self._bus.start()
        self._status.start()
        self._wait_joined(set(services) - {"context"})

    def _spawn(self, name: str) -> None:
        command = self.setup.commands.get(name, ["-m", f"services.{name}"])
        with self._log.open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, *command, "--config", str(self._config)], stdout=log, stderr=log
            )

    def _next_kill(self) -> float:
        mean = self.setup.kill_draft_s
        return time.monotonic() + self._random.uniform(0.5, 1.5) * mean if mean else math.inf

    def _kill_draft(self) -> None:
        """SIGKILL, at any instant of a pass, and a new one."""
        time.sleep(self._random.uniform(0.0, 0.1))
        self._cpu_of_killed["draft"] += _cpu_seconds(self._processes["draft"])
        self._processes["draft"].kill()
        self._processes["draft"].wait(_STOP_S)
        self._spawn("draft")
        self.kills += 1
        self._kill_at = self._next_kill()

    def _wait_joined(self, roles: set[str]) -> None:
        deadline = time.monotonic() + _START_S
        if not isinstance(self._bus.receive(_START_S), Joined):
            raise self._silent("context does not answer")
        while True:
            self._status.send(StatusRequest())
            item = self._status.receive(0.5)
            if isinstance(item, StatusReply) and roles <= {s.role for s in item.services if s.alive}:
                return
            if time.monotonic() > deadline:
                raise self._silent(f"{' and '.join(sorted(roles))} not alive after {_START_S:.0f} s")

    def _silent(self, what: str) -> RinglineError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines() or ["nothing"]
        return RinglineError(
            f"the plant {self.setup.name}: {what}; its services said last: {lines[-1][:500]}"
        )

    def check_log(self) -> None:
        """RinglineError when a service has logged an error: then not what was asked for was measured."""
        for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"level": "error"' in line:
                raise RinglineError(f"the plant {self.setup.name} logged an error: {line[:500]}")

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time of each service since its start, all threads."""
        found = {}
        for name, process in self._processes.items():
            try:
                found[name] = _cpu_seconds(process) + self._cpu_of_killed[name]
            except psutil.Error:
                raise self._silent(f"{name} has ended") from None
        return found

    # --- questions ---

    def register(self, workload: Workload) -> None:
        """The profiles; their prefixes are computed before the first question is."""
        for name, tokens in workload.prefixes.items():
            profile = next(q.profile for q in workload.questions if q.profile.name == name)
            self._bus.send(RegisterProfile(profile=name, tokens=tokens, window=profile.window))

    def ask(self, questions: Sequence[Question], workload: Workload, company: int = 1) -> list[Timed]:
        """Ask in order, at most `company` at a time; answers in the order of the questions."""
        waiting = list(reversed(questions))
        asked: dict[str, Timed] = {}
        open_: set[str] = set()
        while waiting or open_:
            while waiting and len(open_) < company:
                question = waiting.pop()
                asked[question.id] = self._submit(question, workload)
                open_.add(question.id)
            self._take(asked, open_)
            if time.monotonic() >= self._kill_at and "draft" in self._processes:
                self._kill_draft()
        return [asked[question.id] for question in questions]

    def _submit(self, question: Question, workload: Workload) -> Timed:
        submit = Submit(
            request_id=question.id,
            profile=question.profile.name,
            tokens=question.tokens,
            max_tokens=question.profile.max_tokens,
            stop_tokens=workload.stop_tokens,
            sampling=workload.sampling,
            severity=question.severity,
        )
        self._bus.send(submit)
        return Timed(question, time.monotonic())

    def _take(self, asked: dict[str, Timed], open_: set[str]) -> None:
        item = self._bus.receive(_ANSWER_S)
        now = time.monotonic()
        match item:
            case Tokens(request_id=name, index=index, tokens=tokens):
                answer = asked[name]
                if index != len(answer.tokens):
                    raise self._silent(f"the answer {name} has a gap")
                answer.tokens += tokens
                answer.pieces.append((now, len(tokens)))
            case Finished(request_id=name):
                asked[name].ended = now
                open_.discard(name)
                if item.reason not in ("stop", "length"):
                    raise self._silent(f"the answer {name} ended with {item.reason}: {item.detail}")
            case Rejected(reason=reason):
                raise self._silent(f"a question was refused: {reason}")
            case Lost(reason=reason):
                raise self._silent(f"context was lost: {reason}")
            case None:
                raise self._silent(f"no token for {_ANSWER_S:.0f} s")
            case _:
                pass


def _cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def _config(setup: Setup, home: Path, runtime: Path, memory: Path) -> str:
    """JSON's strings, numbers and lists are TOML's."""
    verifier = {"threads": setup.threads} | setup.verifier
    sections: dict[str, dict[str, Any]] = {
        "paths": {"runtime": str(runtime), "memory": str(memory), "data": str(home.absolute())},
        "models": {"target": setup.target, "draft": setup.draft or ""},
        "verifier": verifier,
        "draft": {"sources": list(setup.sources) or ["retrieval"]},
        "log": {"level": "info"},
    }
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for name, values in sections.items()
    )
