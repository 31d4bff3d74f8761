"""bench.speculation from end to end: two real plants, and what it says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.speculation_plant import ROOT


def test_a_small_run_compares_the_same_answers(data_dir: Path) -> None:
    """SmolLM2, one short question: equal answers, each counted once on either side."""
    command = ["--model", "smollm2-135m", "--data", str(data_dir), "--workload", "chat", "--limit", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.speculation", *command, "--tokens", "24", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["identical"]
    assert report["ratio_to_plain"] > 0
    plain, own = report["sides"]["plain"], report["sides"]["speculating"]
    assert plain["tokens"] == own["tokens"] <= 24
    assert plain["share_plain"] == 1.0
    assert own["passes"] <= plain["passes"]
    accepted = sum(count["accepted"] for count in own["by_source"].values())
    assert round(own["tokens_per_pass"] * own["passes"]) >= accepted
