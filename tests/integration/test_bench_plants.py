"""bench.speculation from end to end: two real plants, and what it says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.speculation_plant import ROOT


def speculation(data_dir: Path, *options: str) -> dict[str, Any]:
    """The report of a run with SmolLM2 on operators' questions."""
    command = ["--model", "smollm2-135m", "--data", str(data_dir), "--workload", "chat", *options]
    done = subprocess.run(
        [sys.executable, "-m", "bench.speculation", *command, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_small_run_compares_the_same_answers(data_dir: Path) -> None:
    """One short question: equal answers, each counted once on either side."""
    report = speculation(data_dir, "--limit", "1", "--tokens", "24")
    assert report["identical"]
    assert report["ratio_to_plain"] > 0
    plain, own = report["sides"]["plain"], report["sides"]["speculating"]
    assert plain["tokens"] == own["tokens"] <= 24
    assert plain["share_plain"] == 1.0
    assert own["passes"] <= plain["passes"]
    accepted = sum(count["accepted"] for count in own["by_source"].values())
    assert round(own["tokens_per_pass"] * own["passes"]) >= accepted


def test_answers_are_equal_however_often_the_draft_service_is_killed(data_dir: Path) -> None:
    report = speculation(data_dir, "--limit", "3", "--tokens", "60", "--kill-draft", "0.3")
    assert report["identical"]
    assert report["sides"]["speculating"]["draft_kills"] > 0
    assert report["sides"]["plain"]["draft_kills"] == 0
