"""The services of a plant: what is started, in which order, and what its end means for the others."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from shared.config.settings import Settings


@dataclass(frozen=True)
class Process:
    """One row. `optional`: the plant goes on without it. `stop_s`: how long it may take to end."""

    name: str
    module: str
    optional: bool = False
    stop_s: float = 10.0

    def command(self, config: Path) -> list[str]:
        return [sys.executable, "-m", self.module, "--config", str(config)]


# In starting order, which saves a retry or two; nobody depends on it. Stopped in the opposite order, so that
# the gateway takes no alarm that nobody would answer and context outlives those who use its memory.
BROKER = Process("broker", "services.launcher.broker")
SERVICES = (
    Process("context", "services.context"),
    Process("verifier", "services.verifier"),
    Process("draft", "services.draft", optional=True),
    Process("gateway", "services.gateway"),
)


def processes(settings: Settings) -> tuple[Process, ...]:
    """What `ringline up` runs with these settings."""
    return (BROKER, *SERVICES) if settings.broker.enabled else SERVICES
