"""The whole plant: an alarm in, an answer out, whoever dies in between."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway_world import Mosquitto
from tests.integration.waiting import wait_for
from tests.integration.whole_plant import PlantHome, WholePlant, ringline

ALARM: dict[str, Any] = {
    "id": "B2-0817",
    "source": "boiler-2",
    "code": "TAH-204",
    "text": "Flue gas temperature high",
    "severity": "alarm",
    "value": 268.4,
    "unit": "degC",
    "limit": 250,
}


def notes(plant: WholePlant) -> set[str]:
    """What keeps services from their work."""
    reply = plant.status()
    return set() if reply is None else {service.note for service in reply.services}


def test_an_alarm_is_answered_and_the_plant_can_be_asked(plant: WholePlant) -> None:
    """`ringline status` shows it; a second `ringline up` is refused and does not disturb it."""
    plant.publish("boiler", ALARM)
    answer = plant.answer("boiler")
    assert answer["id"] == "B2-0817"
    assert answer["text"]
    assert "".join(part["text"] for part in plant.streamed("boiler")) == answer["text"]
    shown = ringline("status", "--config", str(plant.home.config))
    assert shown.returncode == 0, shown.stderr
    assert "blocks used" in shown.stdout
    wait_for(lambda: notes(plant) == {""}, "a heartbeat of the gateway with its broker")
    second = ringline("up", "--config", str(plant.home.config))
    assert second.returncode == 2
    assert second.stderr.startswith("ringline: a plant already runs in ")
    assert plant.status() is not None
    assert plant.stop() == 0


def test_a_plant_with_int8_keys_and_values_answers_alike_with_and_without_a_draft_model(
    data_dir: Path, mosquitto: Mosquitto
) -> None:
    """Both planes are int8, and `ringline status` says so."""
    answers = []
    for draft in ("", "smollm2-135m"):
        home = PlantHome(data_dir, mosquitto.port)
        home.edit("pool_mb = 96", 'pool_mb = 96\nkv = "int8"')
        home.edit('draft = ""', f'draft = "{draft}"')
        home.edit('sources = ["retrieval"]', 'sources = ["retrieval", "cpu"]')
        plant = WholePlant(home, mosquitto.port)
        try:
            plant.start()
            plant.publish("boiler", ALARM | {"id": f"B2{draft}"})
            answers.append(plant.answer("boiler")["text"])
            assert "96 MB in int8" in ringline("status", "--config", str(home.config)).stdout
            plant.close()
        finally:
            home.remove()
    assert answers[0] == answers[1] != ""


@pytest.mark.parametrize("service", ["draft", "verifier", "context", "gateway"])
def test_a_killed_service_comes_back_and_no_alarm_is_lost(plant: WholePlant, service: str) -> None:
    """kill -9 while answers are being made: every alarm gets the answer that an untouched plant gives."""
    plant.publish("boiler", ALARM)
    untouched = plant.answer("boiler")["text"]
    for number in range(3):
        plant.publish("line", ALARM | {"id": f"again-{number}"})
    old = plant.kill(service)
    wait_for(lambda: len({a["id"] for a in plant.answers("line")}) == 3, "three answers", plant.log)
    assert {answer["text"] for answer in plant.answers("line")} == {untouched}
    plant.wait_alive()
    assert plant.pid(service) != old


def test_a_stop_right_behind_a_kill_leaves_nothing(plant: WholePlant) -> None:
    """Who binds sockets and owns the memory dies, and the launcher learns of it and of its stop at once."""
    plant.freeze()
    plant.kill("verifier")
    plant.kill("context")
    assert plant.stop() == 0
    assert plant.log().count("context: started") == 1


def test_status_says_which_service_is_not_alive(plant: WholePlant) -> None:
    plant.kill("draft", signal.SIGSTOP)
    config = str(plant.home.config)
    wait_for(lambda: ringline("status", "--config", config, "--service", "draft").returncode == 1, "status 1")
    assert ringline("status", "--config", config, "--service", "context").returncode == 0
    plant.kill("draft", signal.SIGCONT)
    wait_for(lambda: ringline("status", "--config", config, "--service", "draft").returncode == 0, "status 0")
