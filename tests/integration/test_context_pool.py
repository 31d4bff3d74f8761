"""`ringline pool` shows whose the blocks are."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

from shared.bus.messages.requests import StreamAppend, StreamAppended
from shared.bus.messages.status import PoolReply
from tests.integration.context_world import ROOT, WAIT_S, World, wait


def test_ringline_pool_shows_whose_the_blocks_are(world: World) -> None:
    world.start("context")
    gateway = world.gateway()
    world.start("verifier")
    world.until(lambda s: s.blocks_pinned == 3)
    gateway.send(StreamAppend(stream="line 3", profile="p", serial=1, tokens=[7] * 50))
    wait(gateway, StreamAppended, serial=1)
    world.until(lambda s: s.sequences[0].kv_len == 87)
    command = [sys.executable, "-m", "services.launcher", "pool", "--config", str(world.config)]
    run = partial(subprocess.run, capture_output=True, text=True, timeout=WAIT_S, check=True, cwd=ROOT)
    reply = PoolReply.model_validate_json(run([*command, "--json"]).stdout)
    assert [(s.kind, s.name, s.known, s.ring_position) for s in reply.sequences] == [
        ("prefix", "p", 37, 0),
        ("stream", "line 3", 87, 50),
    ]
    used = reply.blocks_cached + reply.blocks_pinned + reply.blocks_private + reply.blocks_shared
    assert reply.blocks_free + used == reply.blocks_total
    assert (reply.blocks_pinned, reply.blocks_private) == (3, 4)
    shown = run(command, env={**os.environ, "COLUMNS": "160"}).stdout
    assert "stream" in shown
    assert "line 3" in shown
    assert "prefix cache: " in shown
