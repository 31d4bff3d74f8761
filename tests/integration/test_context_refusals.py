"""Who does not belong to this plant is refused, and what makes no sense changes nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from shared.bus.events import BusRefused
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Cancel, RegisterProfile, Submit
from shared.bus.messages.sequences import Commit, CommitFailed, PlaneFilled, SeqClose, SeqReleased
from shared.bus.messages.status import StatusRequest
from tests.integration.context_process import verifier_hello
from tests.integration.context_world import ROOT, WAIT_S, World


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("config_hash", "other"),
        ("model_hash", "sha-other"),
        ("vocabulary_hash", "v2"),
        ("plane", "9 layers x 1 heads x 32, f16"),
    ],
)
def test_a_verifier_that_does_not_belong_here_is_told_which_field(
    world: World, field: str, value: str
) -> None:
    world.start("context")
    with pytest.raises(BusRefused, match=f"{field} is {value}, expected") as caught:
        world.client(verifier_hello(world.settings, **{field: value}))
    assert "configuration" in str(caught.value)


def test_a_draft_with_a_model_is_refused_where_there_is_no_draft_plane(world: World) -> None:
    world.start("context")
    hello = world.hello("draft")
    with pytest.raises(BusRefused, match="plane"):
        world.client(hello.model_copy(update={"model_hash": "x", "plane": "1 layers"}))
    world.client(hello)


def test_senseless_messages_change_nothing(world: World) -> None:
    """From every role, in every order: context goes on and its books are right."""
    world.start("context")
    gateway = world.gateway()
    verifier = world.client(verifier_hello(world.settings))
    draft = world.client(world.hello("draft"))
    chance = random.Random(7)

    def number() -> int:
        return chance.choice([0, 1, 2, 16, 37, 1 << 20, (1 << 53) - 1])

    for _ in range(300):
        seq = max(1, number() % 8)
        tokens = [chance.randrange(2**31) for _ in range(chance.randrange(4))]
        messages: list[Message] = [
            Commit(seq=seq, epoch=number(), kv_len=number(), written=number(), tokens=tokens),
            CommitFailed(seq=seq, epoch=number(), reason="?"),
            PlaneFilled(seq=seq, kv_len=number()),
            SeqReleased(seq=seq),
            SeqClose(seq=seq, reason="?"),
            RegisterProfile(profile=f"x{number()}", tokens=tokens, window=number()),
            Submit(
                request_id=f"q{seq}", profile=f"x{number()}", tokens=tokens, max_tokens=9, stop_tokens=tokens
            ),
            Cancel(request_id=f"q{seq}"),
            StatusRequest(),
        ]
        chance.choice([gateway, verifier, draft]).send(chance.choice(messages))
    verifier.send(Commit(seq=1, epoch=0, kv_len=0, written=1, tokens=[]))
    assert world.status().blocks_total > 0
    said = world.stop("context")
    assert "Traceback" not in said
    assert "inconsistent" not in said


def test_a_second_context_is_refused_with_one_line(world: World) -> None:
    first = world.start("context")
    world.status()
    second = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("context_process.py")),
            "context",
            "--config",
            world.config,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert f"context runs already in {world.directory}/run, as process {first.pid}" in second.stderr
    assert world.status().blocks_total > 0
