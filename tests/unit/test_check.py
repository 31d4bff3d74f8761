"""`ringline check` refuses what the services would refuse because of the configuration alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.launcher.check import check_plant
from services.launcher.cli import app
from shared.config.load import load_settings
from tests.unit.config_file import ONE_ROUTE, problem, write

GOOD = '[paths]\nruntime = "/nonexistent/ringline"\n' + ONE_ROUTE


def check(file: Path) -> str:
    """What `ringline check` prints."""
    result = CliRunner().invoke(app, ["check", "--config", str(file)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def refusal(tmp_path: Path, text: str) -> str:
    return problem(tmp_path, text, check)


def test_a_good_configuration_is_valid_and_nothing_is_made(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    assert check(file).splitlines()[-1] == f"{file}: valid; 1 profiles, 1 routes"
    assert not Path("/nonexistent").exists()


@pytest.mark.parametrize("file", ["deploy/ringline.toml"])
def test_what_is_delivered_is_valid(file: str) -> None:
    check_plant(load_settings(Path(__file__).resolve().parents[2] / file))


def test_a_plant_without_routes_is_refused(tmp_path: Path) -> None:
    assert "no [[routes]] configured" in refusal(tmp_path, "")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("plant/{1}/answer", "plant/{1}/alarm", "would come back as an alarm"),
        ("plant/+/alarm", "plant/#", "would come back as an alarm"),
        ("plant/+/alarm", "plant/a+", "+ must be a whole level"),
        ("{1}", "{2}", "needs more wildcards"),
        ("/nonexistent/ringline", "/" + "r" * 100, "the system allows 107"),
        ("[[profiles]]", '[models]\ntarget = "gpt"\n[[profiles]]', 'no model is called "gpt"'),
        ("[[profiles]]", '[models]\ndraft = "gpt"\n[[profiles]]', 'no model is called "gpt"'),
        ("[[profiles]]", "[broker]\nenabled = true\n[[profiles]]", 'set mqtt.version = "3.1.1"'),
        ("[[profiles]]", '[broker]\nenabled = true\nhost = "0.0.0.0"\n[[profiles]]', "serves only loopback"),
        ("[[profiles]]", '[gateway]\ndead_letter_topic = "plant/x/alarm"\n[[profiles]]', "dead_letter_topic"),
    ],
)
def test_what_a_service_would_refuse_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert why in refusal(tmp_path, GOOD.replace(old, new))
