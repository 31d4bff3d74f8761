"""The files in shared memory: sizes that change, space that is missing."""

from __future__ import annotations

import pytest

from shared.bus.events import BusRefused
from shared.config.errors import RinglineError
from shared.kv import attach
from tests.integration.context_process import PLANE, verifier_hello
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
    assert attach(world.memory, "verifier", PLANE, "f16").pool.n_blocks == after.blocks_total
    assert world.stop("context").count("replaced") == 1


def test_another_format_replaces_what_a_killed_context_left(world: World) -> None:
    """One line says from what to what; verifiers with the old configuration are refused."""
    world.start("context")
    before = world.status()
    world.kill("context")
    old = verifier_hello(world.settings)
    world.write_config(pool_mb=1, kv="int8")
    world.start("context")
    after = world.status()
    assert (before.kv, after.kv) == ("f16", "int8")
    assert after.blocks_total > 1.7 * before.blocks_total
    assert attach(world.memory, "verifier", PLANE, "int8").pool.n_blocks == after.blocks_total
    with pytest.raises(RinglineError, match=r", int8 for the verifier, it needs .*, f16"):
        attach(world.memory, "verifier", PLANE, "f16")
    with pytest.raises(BusRefused, match="config_hash"):
        world.client(old)
    said = world.stop("context")
    assert said.count("replaced") == 1
    assert "kv f16, here int8" in said


def test_a_pool_larger_than_shared_memory_is_one_line(world: World) -> None:
    world.write_config(pool_mb=1 << 20)
    process = world.start("context")
    said = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "MB free: lower context.pool_mb" in said
