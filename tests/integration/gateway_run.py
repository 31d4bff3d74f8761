"""Broker, gateway, context and plant of one test, in a directory of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.integration.gateway_world import CONFIG, GatewayProcess, Mosquitto, Plant
from tests.integration.talking_context import TalkingContext


class World:
    def __init__(self, directory: Path, version: str, broker: str, config: str) -> None:
        self.directory = directory
        self.broker = Mosquitto(directory / "mosquitto", broker)
        self.broker.start()
        self.context = TalkingContext(directory / "run")
        self.gateway = GatewayProcess(directory, self.broker.port, version, config)
        self.plant = Plant(self.broker.port)

    def start(self) -> None:
        self.context.start()
        self.gateway.start()
        self.gateway.wait_log("joined context")
        self.gateway.wait_log("connected to the broker")

    def wait_taken(self) -> None:
        """Until the gateway has what was published before: it takes it in order, and this is no alarm."""
        letters = len(self.plant.on("dead"))
        self.plant.publish("plant/1/alarm", b"")
        self.plant.wait_dead(letters + 1)

    def close(self) -> None:
        self.plant.close()
        if self.gateway.process is not None:
            self.gateway.process.kill()
            self.gateway.process.wait()
        self.context.stop()
        self.broker.stop()
        print(self.gateway.log())


def run_world(version: str, broker: str = "", config: str = CONFIG) -> Iterator[World]:
    """One world; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rl-", dir="/tmp") as directory:
        made = World(Path(directory), version, broker, config)
        try:
            yield made
        finally:
            made.close()
