"""The files in shared memory: sizes that change, space that is missing."""

from __future__ import annotations

from shared.kv import attach
from tests.integration.context_process import PLANE
from tests.integration.context_world import WAIT_S, World


def test_another_pool_size_replaces_what_a_killed_context_left(world: World) -> None:
    world.start("context")
    before = world.status()
    world.kill("context")
    world.write_config(pool_mb=2)
    world.start("context")
    after = world.status()
    assert after.blocks_total == 2 * before.blocks_total
    assert after.generation != before.generation
    assert attach(world.memory, "verifier", PLANE).pool.n_blocks == after.blocks_total
    assert world.stop("context").count("replaced") == 1


def test_a_pool_larger_than_shared_memory_is_one_line(world: World) -> None:
    world.write_config(pool_mb=1 << 20)
    process = world.start("context")
    said = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "MB free: lower context.pool_mb" in said
