"""A broker and a plant for the tests that want the real thing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.bus.endpoints import Endpoints
from shared.config.settings import Paths
from tests.integration.context_world import World
from tests.integration.gateway_world import Mosquitto, free_port
from tests.integration.whole_plant import PlantHome, WholePlant


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker with persistence on a free port of its own."""
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def home(data_dir: Path) -> Iterator[PlantHome]:
    """A configuration whose broker is not there."""
    place = PlantHome(data_dir, free_port())
    yield place
    place.remove()


@pytest.fixture
def plant(data_dir: Path, mosquitto: Mosquitto, request: pytest.FixtureRequest) -> Iterator[WholePlant]:
    """The four services, alive. Afterwards nothing of them may be left."""
    place = PlantHome(data_dir, mosquitto.port)
    running = WholePlant(place, mosquitto.port)
    try:
        running.start()
        yield running
        print(running.log())  # pytest shows it when the test fails
        running.close()
    finally:
        place.remove()


@pytest.fixture
def endpoints() -> Iterator[Endpoints]:
    """In a directory with a short name: pytest's own are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="rl") as directory:
        yield Endpoints.of(Paths(runtime=Path(directory)))


@pytest.fixture
def world() -> Iterator[World]:
    """A plant of its own, around a context that is not started yet."""
    world = World()
    yield world
    world.close()
