"""What is wrong at the start is one clear line: what, where, what to do. Never a traceback."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.launcher.status import ask_status
from shared.config.load import load_settings
from tests.integration.waiting import wait_for
from tests.integration.whole_plant import ROOT, PlantHome, ringline


def service(name: str, home: PlantHome) -> subprocess.CompletedProcess[str]:
    """One service alone, to its end."""
    command = [sys.executable, "-m", f"services.{name}", "--config", str(home.config)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@contextlib.contextmanager
def running(name: str, home: PlantHome) -> Iterator[None]:
    """A service, until the block ends; it begins when there is a context."""
    command = [sys.executable, "-m", f"services.{name}", "--config", str(home.config)]
    socket_file = home.home / "run" / "control.sock"
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_for(socket_file.exists, "context's socket")
        yield
    finally:
        process.terminate()
        process.wait(30)


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr of a command that has refused; log lines (JSON) may come before it."""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line and not line.startswith("{")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.mark.parametrize("command", ["up", "status", "check"])
def test_an_unknown_key_is_named_with_file_and_line(home: PlantHome, command: str) -> None:
    home.edit("pool_mb = 96", "pool_mbs = 96")
    line = only_line(ringline(command, "--config", str(home.config)))
    number = home.config.read_text().splitlines().index("pool_mbs = 96") + 1
    assert f'{home.config}:{number}: unknown key "context.pool_mbs"; did you mean "pool_mb"?' in line


@pytest.mark.parametrize("command", ["up", "check"])
def test_a_route_whose_answers_come_back_as_alarms_is_refused_before_anything_starts(
    home: PlantHome, command: str
) -> None:
    home.edit("plant/{1}/answer", "plant/{1}/alarm")
    line = only_line(ringline(command, "--config", str(home.config)))
    assert line.startswith(f"ringline: {home.config}: routes[0].answer ")
    assert "would come back as an alarm" in line
    assert not (home.home / "run").exists()


@pytest.mark.parametrize("name", ["context", "verifier", "draft", "gateway"])
def test_every_service_refuses_a_missing_configuration(home: PlantHome, name: str) -> None:
    home.config.unlink()
    assert "cannot read the configuration" in only_line(service(name, home))


def test_status_of_nothing_says_so(home: PlantHome) -> None:
    """Exit code 1, as when one service is not alive: a monitor needs one rule."""
    for arguments in ([], ["--service", "gateway"]):
        result = ringline("status", "--config", str(home.config), *arguments)
        assert result.returncode == 1
        assert result.stderr.startswith("ringline: nothing runs in ")
        assert result.stderr.count("\n") == 1


def test_status_names_a_gateway_that_has_no_broker(home: PlantHome) -> None:
    """It is alive, so a line of its own says why it answers nothing."""
    settings = load_settings(home.config)

    def notes() -> list[str]:
        return [service.note for service in ask_status(settings).services if service.role == "gateway"]

    with running("context", home), running("gateway", home):
        expected = f"no connection to the MQTT broker at 127.0.0.1:{settings.mqtt.port}"
        wait_for(lambda: notes() == [expected], "the gateway's note")


@pytest.mark.parametrize("name", ["verifier", "draft", "gateway"])
def test_a_service_that_context_refuses_ends_with_one_line(home: PlantHome, name: str) -> None:
    """Its weights are loaded by then; nothing is said about them while the interpreter takes itself apart."""
    home.edit('draft = ""', 'draft = "smollm2-135m"')
    home.edit('sources = ["retrieval"]', 'sources = ["retrieval", "cpu"]')
    with running("context", home):
        home.edit("pool_mb = 96", "pool_mb = 97")
        line = only_line(service(name, home))
    assert "start every service with the same configuration file" in line


def test_a_missing_model_stops_the_plant_with_one_line_that_says_how_to_get_it(home: PlantHome) -> None:
    home.edit('target = "smollm2-135m"', f'target = "{home.home}/none.gguf"')
    result = ringline("up", "--config", str(home.config))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert re.search(r"ringline context: .*none\.gguf", result.stderr), result.stderr


def test_a_truncated_model_is_one_line(home: PlantHome, smollm2: Path) -> None:
    cache = home.home / "data" / "cache"
    cache.unlink()  # the shared one: this model is of no use to other tests
    cache.mkdir()
    cut = home.home / "cut.gguf"
    with smollm2.open("rb") as source, cut.open("wb") as target:
        target.write(source.read(20_000_000))
    home.edit('target = "smollm2-135m"', f'target = "{cut}"')
    line = only_line(service("context", home))
    assert "cut.gguf" in line
    assert "truncated" in line


def test_a_pool_larger_than_shared_memory_names_both_sizes(home: PlantHome) -> None:
    free_mb = shutil.disk_usage("/dev/shm").free >> 20
    home.edit("pool_mb = 96", f"pool_mb = {free_mb + 1000}")
    line = only_line(service("context", home))
    assert str(home.memory) in line or "/dev/shm" in line
    assert "MB" in line


def test_a_socket_directory_with_too_long_a_name_names_the_key(home: PlantHome) -> None:
    home.edit(f'runtime = "{home.home}/run"', f'runtime = "{home.home}/{"d" * 100}"')
    for name in ("context", "gateway"):
        assert "paths.runtime" in only_line(service(name, home))


def test_a_taken_port_of_the_embedded_broker_is_one_line(home: PlantHome) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = home.config.read_text()
        text = re.sub(r"\[mqtt\]\nport = \d+", f'[mqtt]\nport = {port}\nversion = "3.1.1"', text)
        home.config.write_text(text + f"\n[broker]\nenabled = true\nport = {port}\n")
        result = ringline("up", "--config", str(home.config))
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert re.search(rf"ringline broker: .*{port}", result.stderr), result.stderr
