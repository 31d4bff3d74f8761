"""What every service does alike: exit codes, one of a kind, stop signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.integration.test_start_errors import only_line, service
from tests.integration.waiting import wait_for
from tests.integration.whole_plant import ROOT, PlantHome, WholePlant

FRAME = """
import sys
from shared.config.errors import RestartNeeded, RinglineError
from shared.bus.events import BusRefused
from shared.bus.messages.joining import Refused
from shared.config.service import run_service

def refused(field):
    return BusRefused(Refused(field=field, expected="a", got="b", hint="c"))

def main(settings, stop):
    raise {error}

run_service("draft", main)
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("RinglineError('wrong')", 2),
        ("RestartNeeded('gone')", 3),
        ("refused('config_hash')", 2),
        ("refused('incarnation')", 3),
    ],
)
def test_the_exit_code_says_whether_a_restart_mends_it(home: PlantHome, error: str, code: int) -> None:
    """A service that was fenced is started again; one that does not belong here is not."""
    command = [sys.executable, "-c", FRAME.format(error=error), "--config", str(home.config)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == code
    assert result.stderr.count("\n") == 1


def test_a_stray_second_service_is_refused_and_the_plant_goes_on(plant: WholePlant) -> None:
    pids = {name: plant.pid(name) for name in ("context", "verifier", "draft", "gateway")}
    for name, pid in pids.items():
        line = only_line(service(name, plant.home))
        assert f"{name} runs already in" in line
        assert f"as process {pid}:" in line
    assert {name: plant.pid(name) for name in pids} == pids
    plant.publish("line", {"id": "1", "text": "Flue gas temperature high"})
    assert plant.answer("line")["text"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_a_terminal_that_closes_stops_the_plant_in_order(plant: WholePlant, number: signal.Signals) -> None:
    assert plant.stop(number) == 0


def test_a_plant_whose_terminal_is_gone_still_leaves_nothing(home: PlantHome) -> None:
    """The hang-up comes with a standard error that cannot be written any more."""
    command = [sys.executable, "-m", "services.launcher", "up", "--config", str(home.config)]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, command)
    seen = b""
    while seen.count(b'"ready"') < 1 or seen.count(b": started") < 4:
        seen += os.read(terminal, 65536)
    os.close(terminal)
    assert ended(child) is not None
    assert list(home.memory.iterdir()) == []
    assert list((home.home / "run").iterdir()) == []


def ended(pid: int) -> int | None:
    """The exit code of a child that ends within a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found, code = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(code)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def test_an_ignored_hangup_stays_ignored(home: PlantHome) -> None:
    """As `nohup` asks for."""
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "from shared.config.signals import stop_event; stop = stop_event();"
        "signal.raise_signal(signal.SIGHUP); assert not stop.wait(0.3);"
        "signal.raise_signal(signal.SIGQUIT); assert stop.wait(10)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize("name", ["kv.ctl", "kv.pool", "control.sock"])
def test_a_removed_file_of_context_is_made_anew_while_the_plant_runs(plant: WholePlant, name: str) -> None:
    """Even when the verifier dies at the same time, and the alarms get the answers they would have got."""
    alarm = {"id": "before", "text": "Flue gas temperature high"}
    plant.publish("line", alarm)
    before = plant.answer("line")["text"]
    directory = plant.home.home / "run" if name.endswith("sock") else plant.home.memory
    old = plant.pid("context")
    plant.publish("line", alarm | {"id": "during"})
    (directory / name).unlink()
    plant.kill("verifier")
    wait_for(lambda: "was removed or replaced while the plant runs" in plant.log(), plant.log())
    assert plant.answer("line", 2)["text"] == before
    plant.wait_alive()
    assert plant.pid("context") != old
