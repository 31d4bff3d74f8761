"""Who is admitted, who waits and who is refused."""

from __future__ import annotations

import pytest

from shared.bus.messages.requests import Accepted, RegisterProfile, Rejected
from shared.bus.messages.sequences import SeqOpen
from tests.unit.context_plant import Decoder, Plant, compute_prefix, start, submit


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"prompt": 65}, "sink and window"),
        ({"profile": "x"}, "unknown profile"),
        ({"tokens": [1, 2, 3]}, "does not begin with"),
        ({"prompt": 0}, "nothing behind"),
        ({"tokens": [*[900 + i for i in range(20)], 1000]}, "vocabulary"),
        ({"max_tokens": 60_000}, "max_tokens"),
    ],
)
def test_a_request_that_can_never_be_answered_is_refused_for_ever(
    plant: Plant, fields: dict[str, object], says: str
) -> None:
    prefix = plant.profile()
    plant.sessions.submit(submit(prefix, **fields))  # type: ignore[arg-type]
    rejected = plant.take("gateway", Rejected)[0]
    assert says in rejected.reason
    assert rejected.retry_after_s is None
    assert plant.ledger.live == {}


def test_a_request_larger_than_the_pool_is_refused_with_the_numbers() -> None:
    plant = Plant(blocks=6)
    prefix = plant.profile()
    plant.sessions.submit(submit(prefix, prompt=60))
    assert "pool has 6" in plant.take("gateway", Rejected)[0].reason
    plant.close()


def test_requests_wait_until_their_prefix_is_computed(plant: Plant) -> None:
    prefix = list(range(30))
    plant.sessions.register(RegisterProfile(profile="p", tokens=prefix, window=64))
    plant.sessions.submit(submit(prefix))
    opened = plant.take("verifier", SeqOpen)
    assert [o.max_tokens for o in opened] == [0]
    assert len(plant.sessions.waiting) == 1
    compute_prefix(plant, opened[0])
    assert len(plant.sessions.waiting) == 0
    assert plant.take("gateway", Accepted)[0].cached_tokens == 30


def test_the_most_severe_waits_least(plant: Plant) -> None:
    for name in "abc":
        start(plant, name, severity=3)
    prefix = plant.profile()
    plant.sessions.submit(submit(prefix, "info", severity=0))
    plant.sessions.submit(submit(prefix, "critical", severity=3))
    plant.sent["gateway"].clear()
    plant.sessions.cancel("a")
    assert [m.request_id for m in plant.take("gateway", Accepted)] == ["critical"]


def test_a_full_queue_refuses_the_least_severe_with_a_time_to_retry(plant: Plant) -> None:
    for name in "abc":
        start(plant, name, severity=3)
    prefix = plant.profile()
    for i in range(4):
        plant.sessions.submit(submit(prefix, f"w{i}", severity=1))
    plant.sessions.submit(submit(prefix, "late", severity=1))
    plant.sessions.submit(submit(prefix, "critical", severity=3))
    refused = plant.take("gateway", Rejected)
    assert [m.request_id for m in refused] == ["late", "w3"]
    assert all(m.retry_after_s is not None and m.retry_after_s >= 1 for m in refused)
    assert "critical" in plant.sessions.waiting


def test_every_sequence_admitted_can_grow_to_its_end() -> None:
    plant = Plant(blocks=20, context={"pool_mb": 1, "max_sequences": 8, "max_waiting": 8})
    prefix = plant.profile()
    for i in range(6):
        plant.sessions.submit(submit(prefix, f"r{i}", max_tokens=60))
    decoders = [Decoder(plant, opened) for opened in plant.take("verifier", SeqOpen)]
    assert 1 <= len(decoders) < 6
    for token in range(60):
        for decoder in decoders:
            decoder.commit(token)
    assert plant.ledger.held == {}
    plant.close()


def test_a_request_that_waits_can_be_sent_again(plant: Plant) -> None:
    for name in "abc":
        start(plant, name)
    prefix = plant.profile()
    for _ in range(9):
        plant.sessions.submit(submit(prefix, "w"))
    assert len(plant.sessions.waiting) == 1
    assert plant.take("gateway", Rejected) == []
