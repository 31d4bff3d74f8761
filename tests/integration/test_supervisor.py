"""The launcher with small processes in the place of the services: restarts, budgets, ends, and no orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.launcher.process_table import Process
from services.launcher.supervisor import Supervisor
from shared.config.settings import Launcher
from tests.integration.waiting import wait_for

PATIENCE_S = 30.0
ROOT = Path(__file__).resolve().parents[2]

SLEEPS = "import time; time.sleep(600)"
STUBBORN = (
    "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "pathlib.Path({!r}).touch(); time.sleep(600)"
)


class Script(Process):
    """A row of the table that runs a line of Python."""

    def command(self, config: Path) -> list[str]:
        return [sys.executable, "-c", self.module]


class Run:
    """A supervisor in a thread, with the lines it reports."""

    def __init__(self, *table: Process, limits: Launcher | None = None) -> None:
        self.lines: list[str] = []
        self.stop = threading.Event()
        self.code: int | None = None
        limits = limits or Launcher(restarts=3, restart_window_s=60)
        self.supervisor = Supervisor(table, Path("none"), limits, self.lines.append)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.code = self.supervisor.run(self.stop)

    def finish(self) -> int | None:
        self.stop.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.code

    def ends_by_itself(self) -> int | None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.code

    def pid(self, name: str, other_than: int | None = None) -> int:
        wait_for(lambda: self.supervisor.pids().get(name) not in (None, other_than), f"the start of {name}")
        return self.supervisor.pids()[name]


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    before = psutil.Process().children()  # multiprocessing keeps a process of its own
    yield started
    for run in started:
        run.finish()
    assert psutil.Process().children() == before


def test_what_is_killed_is_started_again_and_the_others_stay(runs: list[Run]) -> None:
    run = Run(Script("a", SLEEPS), Script("b", SLEEPS))
    runs.append(run)
    a, b = run.pid("a"), run.pid("b")
    os.kill(a, signal.SIGKILL)
    assert run.pid("a", other_than=a) != a
    assert run.pid("b") == b
    assert "a: was killed by SIGKILL; next start in 0.2 s" in run.lines


def test_processes_start_in_order_and_stop_in_the_opposite_one(runs: list[Run]) -> None:
    run = Run(Script("a", SLEEPS), Script("b", SLEEPS))
    runs.append(run)
    run.pid("b")
    assert run.finish() == 0
    events = [line.split(",")[0] for line in run.lines]
    assert events == ["a: started", "b: started", "b: stopped", "a: stopped"]


def test_a_plant_ends_when_the_restarts_of_a_service_are_used_up(runs: list[Run]) -> None:
    limits = Launcher(restarts=2, restart_window_s=60)
    run = Run(Script("a", SLEEPS), Script("b", "raise SystemExit(3)"), limits=limits)
    runs.append(run)
    assert run.ends_by_itself() == 1
    assert sum(line.startswith("b: started") for line in run.lines) == 3
    assert "b: ended with exit code 3; its restarts are used up; the plant stops" in run.lines
    assert run.lines[-1] == "a: stopped"


def test_a_service_that_refuses_its_configuration_is_not_restarted(runs: list[Run]) -> None:
    run = Run(Script("a", SLEEPS), Script("b", "raise SystemExit(2)"))
    runs.append(run)
    assert run.ends_by_itself() == 2
    assert sum(line.startswith("b: started") for line in run.lines) == 1


@pytest.mark.parametrize("code", [2, 3])
def test_the_plant_goes_on_without_an_optional_service(runs: list[Run], code: int) -> None:
    limits = Launcher(restarts=1, restart_window_s=60)
    run = Run(Script("a", SLEEPS), Script("b", f"raise SystemExit({code})", optional=True), limits=limits)
    runs.append(run)
    wait_for(lambda: any("the plant goes on without it" in line for line in run.lines), "its end")
    time.sleep(0.3)
    assert list(run.supervisor.pids()) == ["a"]
    assert run.finish() == 0


def test_the_budget_is_full_again_after_a_stable_run(runs: list[Run]) -> None:
    limits = Launcher(restarts=1, restart_window_s=0.5)
    run = Run(Script("a", SLEEPS), limits=limits)
    runs.append(run)
    pid = run.pid("a")
    for _ in range(3):
        time.sleep(0.8)
        os.kill(pid, signal.SIGKILL)
        pid = run.pid("a", other_than=pid)
    assert run.finish() == 0


def test_a_process_that_ignores_sigterm_is_killed(runs: list[Run], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    run = Run(Script("a", STUBBORN.format(str(ready)), stop_s=0.5))
    runs.append(run)
    wait_for(ready.exists, "the moment from which SIGTERM is ignored")
    assert run.finish() == 0
    assert run.lines[-1] == "a: did not stop in time and was killed"


def test_children_die_with_a_launcher_that_is_killed() -> None:
    """kill -9 of the launcher leaves nobody behind."""
    code = (
        "import threading\n"
        "from pathlib import Path\n"
        "from services.launcher.supervisor import Supervisor\n"
        "from shared.config.settings import Launcher\n"
        "from tests.integration.test_supervisor import SLEEPS, Script\n"
        "table = [Script('a', SLEEPS), Script('b', SLEEPS)]\n"
        "Supervisor(table, Path('none'), Launcher(), print).run(threading.Event())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL) as launcher:
        parent = psutil.Process(launcher.pid)
        wait_for(lambda: len(parent.children()) == 2, "both children")
        children = parent.children()
        launcher.kill()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert alive == []
