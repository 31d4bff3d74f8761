"""The demonstration's plant: its models, its configuration, and its processes for as long as it lasts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import string
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.launcher.process_table import processes
from services.launcher.status import ask_status, missing
from services.launcher.supervisor import Supervisor
from shared.bus.messages.status import StatusReply
from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.settings import Paths, Settings
from shared.model.catalogue import find
from shared.model.fetch import fetch
from shared.model.open import read_info
from shared.model.report import Report

DRAFTS = {"qwen2.5-coder-1.5b": "qwen2.5-coder-0.5b"}
_START_S = 180.0
_SHARED_MEMORY = Path("/dev/shm")
_POOL_BYTES = 256 << 20
_THREADS = 4  # of the verifier, at most


def demo_files() -> Path:
    """The directory with the alarms and the configuration, in the checkout."""
    for root in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (root / "deploy/demo/alarms.jsonl").is_file():
            return root / "deploy/demo"
    raise RinglineError("deploy/demo is not here: run the demonstration from a checkout of Ringline")


def prepare_models(model: str, data: Path, report: Report) -> str | None:
    """Fetch the model and its draft and pack them. The draft's name, None when there is none for it."""
    draft = DRAFTS.get(model)
    paths = Paths(data=data)
    for name in filter(None, (model, draft)):
        fetch(find(name), paths.models, report)
        read_info(name, paths)
    return draft


@contextlib.contextmanager
def scratch_directories(data: Path) -> Iterator[tuple[Path, Path]]:
    """Directories for sockets and shared memory that are gone afterwards.

    Sockets need a short path; shared memory becomes a file on disk where /dev/shm is small, as in containers.
    """
    with tempfile.TemporaryDirectory(prefix="ringline-") as runtime:
        name = f"ringline-demo-{os.getpid()}"
        memory = (_SHARED_MEMORY if _has_room(_SHARED_MEMORY) else data / "demo") / name
        try:
            yield Path(runtime), memory
        finally:
            shutil.rmtree(memory, ignore_errors=True)


def _has_room(directory: Path) -> bool:
    return directory.is_dir() and shutil.disk_usage(directory).free >= _POOL_BYTES


def write_config(model: str, draft: str | None, data: Path, runtime: Path, memory: Path) -> Path:
    """The template with this run's directories, models and port. Journal and history begin empty."""
    home = _own_data(data)
    template = string.Template((demo_files() / "ringline.toml").read_text(encoding="utf-8"))
    sources = ["retrieval", "cpu"] if draft else ["retrieval"]
    text = template.substitute(
        runtime=json.dumps(str(runtime)),
        memory=json.dumps(str(memory)),
        data=json.dumps(str(home)),
        target=json.dumps(model),
        draft=json.dumps(draft or ""),
        threads=min(_THREADS, os.cpu_count() or 1),
        sources=json.dumps(sources),
        port=free_port(),
    )
    for old in [*home.glob("journal.db*"), *home.glob("draft/history-*")]:
        old.unlink()
    path = home / "ringline.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _own_data(data: Path) -> Path:
    """A place for journal and history: those in `data` may be a real plant's. Models are shared."""
    home = data / "demo"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("models", "cache"):
        if not (home / name).exists():
            (home / name).symlink_to(Path("..", name), target_is_directory=True)
    return home


def free_port() -> int:
    """A TCP port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class RunningPlant:
    settings: Settings
    supervisor: Supervisor
    thread: threading.Thread
    log: Path

    def status(self) -> StatusReply:
        return ask_status(self.settings)

    def check(self) -> None:
        """RinglineError when the plant has ended by itself."""
        if not self.thread.is_alive():
            raise RinglineError(f"the plant has stopped; the end of {self.log}: {last_line(self.log)}")


@contextlib.contextmanager
def running_plant(config: Path) -> Iterator[RunningPlant]:
    """The broker and the four services, all alive; stopped afterwards. They log to a file by `config`."""
    settings = load_settings(config)
    log = config.with_name("services.log")
    stop = threading.Event()
    with _stderr_to(log):
        supervisor = Supervisor(processes(settings), config, settings.launcher, _note)
        thread = threading.Thread(target=supervisor.run, args=(stop,), name="supervisor")
        thread.start()
        try:
            plant = RunningPlant(settings, supervisor, thread, log)
            _wait_until_alive(plant)
            yield plant
        finally:
            stop.set()
            thread.join()


def _note(line: str) -> None:
    print(f"launcher: {line}", file=sys.stderr, flush=True)


def _wait_until_alive(plant: RunningPlant) -> None:
    deadline = time.monotonic() + _START_S
    absent = "context"
    while time.monotonic() < deadline:
        plant.check()
        with contextlib.suppress(RinglineError):
            absent = ", ".join(missing(plant.status()))
            if not absent:
                return
        time.sleep(0.2)
    raise RinglineError(f"not alive after {_START_S:.0f} s: {absent}; see {plant.log}")


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let this process's and its children's stderr go to a file: the screen belongs to the answers."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def last_line(path: Path) -> str:
    """The last line of a log that says something about an error."""
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith("ringline ")]
    return (telling or lines or ["it is empty"])[-1]
