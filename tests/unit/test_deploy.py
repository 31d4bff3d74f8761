"""What is deployed is valid: compose file, configurations, requirements."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.launcher.process_table import SERVICES
from shared.config.load import load_settings

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "/etc/ringline/ringline.toml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return data


def test_the_compose_file_follows_the_specification() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    result = subprocess.run(
        [*check, str(ROOT / "docker-compose.yml")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_service_of_the_process_table_has_its_container(compose: dict[str, Any]) -> None:
    for process in SERVICES:
        service = compose["services"][process.name]
        assert service["command"] == ["python", "-m", process.module, "--config", CONFIG]
        assert service["healthcheck"]["test"][-3:] == ["--end-hung", "--service", process.name]
        assert service["restart"] == "unless-stopped"
        assert service["init"] is True


def test_the_pool_fits_the_volume_that_holds_it(compose: dict[str, Any]) -> None:
    settings = load_settings(ROOT / "deploy" / "ringline.toml")
    options = compose["volumes"]["memory"]["driver_opts"]["o"]
    size = next(o.removeprefix("size=") for o in options.split(",") if o.startswith("size="))
    assert size.endswith("m")
    assert int(size[:-1]) >= settings.context.pool_mb + 16


def test_the_configuration_names_what_the_containers_mount(compose: dict[str, Any]) -> None:
    paths = load_settings(ROOT / "deploy" / "ringline.toml").paths
    for process in SERVICES:
        targets = [volume.split(":")[1] for volume in compose["services"][process.name]["volumes"]]
        assert {str(paths.runtime), str(paths.memory), str(paths.data), CONFIG} <= set(targets)


def test_the_npu_runtime_is_asked_for_on_aarch64_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rknn = [requirement for requirement in project["dependencies"] if requirement.startswith("rknn")]
    assert len(rknn) == 1
    assert "platform_machine == 'aarch64'" in rknn[0]
