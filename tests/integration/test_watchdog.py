"""A service that hangs is killed and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gateway_world import Mosquitto
from tests.integration.waiting import wait_for
from tests.integration.whole_plant import PlantHome, WholePlant, ringline

HEARD_S = 4.0  # by then the launcher has heard of everybody; who never was heard has far longer


@pytest.fixture
def watched(data_dir: Path, mosquitto: Mosquitto) -> Iterator[WholePlant]:
    """A plant whose launcher is quick to act."""
    home = PlantHome(data_dir, mosquitto.port)
    home.edit("[mqtt]", "[launcher]\nhang_s = 10\n\n[mqtt]")
    plant = WholePlant(home, mosquitto.port)
    try:
        plant.start()
        yield plant
        print(plant.log())
        plant.close()
    finally:
        home.remove()


@pytest.mark.parametrize("name", ["verifier", "context"])
def test_a_stopped_service_is_replaced_and_alarms_are_answered_again(watched: WholePlant, name: str) -> None:
    time.sleep(HEARD_S)
    old = watched.kill(name, signal.SIGSTOP)
    wait_for(lambda: f"{name}: has hung: not heard for" in watched.log(), "the watchdog", watched.log)
    watched.wait_alive()
    assert watched.pid(name) != old
    watched.publish("line", {"id": "1", "text": "Flue gas temperature high"})
    assert watched.answer("line")["text"]
    assert watched.log().count("; killed") == 1


def test_a_health_check_ends_a_stopped_service(plant: WholePlant) -> None:
    """As in a container, where nobody else does; its supervisor starts it again."""
    quick = plant.home.home / "quick.toml"
    text = plant.home.config.read_text(encoding="utf-8")
    quick.write_text(text.replace("[mqtt]", "[launcher]\nhang_s = 10\n\n[mqtt]"), encoding="utf-8")

    def check() -> subprocess.CompletedProcess[str]:
        return ringline("status", "--config", str(quick), "--service", "verifier", "--end-hung")

    assert check().returncode == 0
    plant.kill("verifier", signal.SIGSTOP)
    wait_for(lambda: "verifier has hung: not heard for" in check().stderr, "the check")
    wait_for(lambda: "verifier: was killed by SIGKILL" in plant.log(), "the restart")
    plant.wait_alive()
