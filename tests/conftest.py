"""Fixtures of all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from shared.config.settings import Paths
from shared.model.open import locate

ROOT = Path(__file__).resolve().parents[1]

# How long an example takes says what else the machine does; pytest's own limit ends what hangs.
settings.register_profile("ringline", deadline=None)
settings.load_profile("ringline")

# Plants under test hear a hang-up also when whoever runs the tests does not (nohup).
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Where `make test` puts models and weight caches; tests share it and write nothing else there."""
    return ROOT / ".ringline"


@pytest.fixture(scope="session")
def smollm2(data_dir: Path) -> Path:
    """The small target's GGUF."""
    return locate("smollm2-135m", Paths(data=data_dir)).source


@pytest.fixture(autouse=True, scope="session")
def _no_shared_memory_left() -> object:
    """Whatever the tests start, nothing of theirs stays in shared memory."""
    shared = Path("/dev/shm")
    before = set(shared.iterdir())
    yield
    left = [path for path in set(shared.iterdir()) - before if path.name.startswith("rl") and _ours(path)]
    assert left == [], "left in shared memory"


def _ours(path: Path) -> bool:
    """Other runs on this machine have their own; a directory named after a living run's pid is not judged."""
    return f"-{os.getpid()}-" in path.name
