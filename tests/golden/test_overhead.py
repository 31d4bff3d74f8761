"""The benchmark of what Python takes answers questions as the services do."""

from __future__ import annotations

from pathlib import Path

from bench.overhead import World
from bench.workloads import load_workload
from shared.config.settings import Paths
from shared.model.open import open_model


def test_the_loops_answer_together_and_every_decoding_pass_is_timed(data_dir: Path) -> None:
    file = open_model("smollm2-135m", Paths(data=data_dir))
    workload = load_workload("alarms", file)
    world = World(file.load(2), workload, company=2)
    world.ask(workload.questions[:2])
    again = len(world.passes)
    world.ask(workload.questions[:2])
    assert sum(tokens for *_, tokens in world.passes) > 2 * again, "the second time they are drafted"
    assert all(verifier > 0 and draft >= 0 and forward > 0 for verifier, draft, forward, _ in world.passes)
