"""Profiles: a prefix is computed once, shared, and replaced when it changes."""

from __future__ import annotations

from shared.bus.messages.requests import Accepted, RegisterProfile, Rejected
from shared.bus.messages.sequences import SeqOpen
from shared.config.settings import MAX_PROFILES
from tests.unit.context_plant import Plant, compute_prefix, start, submit


def test_a_request_starts_behind_its_profiles_prefix(plant: Plant) -> None:
    start(plant)
    assert plant.take("gateway", Accepted)[0].cached_tokens == 20
    sequence = next(iter(plant.ledger.live.values()))
    assert sequence.blocks[:2] == plant.ledger.pins["p"]
    assert sequence.kv_len == 20


def test_two_requests_share_the_prefix(plant: Plant) -> None:
    used = plant.ledger.pool.total - plant.ledger.pool.free
    assert used == 0
    start(plant, "a")
    first = plant.ledger.pool.free
    start(plant, "b")
    own = first - plant.ledger.pool.free
    one, two = plant.ledger.live.values()
    assert one.blocks[:2] == two.blocks[:2]
    assert not set(one.blocks[2:]) & set(two.blocks[2:])
    assert own == len(two.blocks) - 2


def test_a_prefix_that_fails_refuses_its_requests_and_is_tried_again_when_asked(plant: Plant) -> None:
    plant.sessions.register(RegisterProfile(profile="p", tokens=[1] * 20, window=64))
    plant.sessions.submit(submit([1] * 20))
    opened = plant.take("verifier", SeqOpen)[0]
    plant.sessions.commit_failed(opened.seq, 0, "no")
    assert plant.take("gateway", Rejected)[0].retry_after_s is not None
    plant.sessions.submit(submit([1] * 20))
    compute_prefix(plant, plant.take("verifier", SeqOpen)[0])
    assert plant.take("gateway", Accepted)


def test_a_changed_profile_replaces_the_old_one_and_running_answers_keep_theirs(plant: Plant) -> None:
    decoder = start(plant)
    old = list(plant.ledger.pins["p"])
    changed = [5] * 33
    plant.sessions.register(RegisterProfile(profile="p", tokens=changed, window=64))
    compute_prefix(plant, plant.take("verifier", SeqOpen)[0])
    assert plant.ledger.pins["p"] != old
    assert plant.ledger.live[decoder.seq].blocks[:2] == old
    decoder.commit(7, finish="stop")
    plant.sessions.submit(submit(changed, "r2"))
    assert plant.take("gateway", Accepted)[-1].cached_tokens == 33


def test_a_request_that_waits_while_its_profile_changes_is_asked_for_again(plant: Plant) -> None:
    """Its prompt begins with the old prefix: it must not be put behind the new one."""
    plant.sessions.register(RegisterProfile(profile="p", tokens=[1] * 20, window=64))
    plant.sessions.submit(submit([1] * 20))
    plant.sessions.register(RegisterProfile(profile="p", tokens=[2] * 20, window=64))
    assert plant.take("gateway", Rejected)[0].retry_after_s is not None
    plant.sessions.submit(submit([2] * 20))
    compute_prefix(plant, plant.take("verifier", SeqOpen)[-1])
    assert plant.take("gateway", Accepted)


def test_a_profile_larger_than_the_pool_is_refused_with_the_reason() -> None:
    plant = Plant(blocks=4)
    plant.sessions.register(RegisterProfile(profile="p", tokens=[1] * 100, window=64))
    plant.sessions.submit(submit([1] * 100))
    assert "pool has 4 blocks" in plant.take("gateway", Rejected)[0].reason
    plant.close()


def test_a_plant_that_renames_its_profiles_never_has_too_many(plant: Plant) -> None:
    """The names that nobody uses go, the oldest first; what is in use and what was registered again stay."""
    decoder = start(plant)
    for number in range(3 * MAX_PROFILES):
        register(plant, f"n{number}")
        register(plant, "kept")
    names = [profile.name for profile in plant.sessions.profiles.all()]
    assert len(names) == MAX_PROFILES
    assert {"p", "kept", f"n{3 * MAX_PROFILES - 1}"} <= set(names)
    assert set(plant.ledger.pins) <= set(names)
    assert plant.ledger.check_integrity() == []
    decoder.commit(7, finish="stop")
    register(plant, "new")
    assert "p" not in plant.ledger.pins


def register(plant: Plant, name: str) -> None:
    tokens = [1 + sum(name.encode()) % 800] * 20
    plant.sessions.register(RegisterProfile(profile=name, tokens=tokens, window=64))
    for opened in plant.take("verifier", SeqOpen):
        compute_prefix(plant, opened)


def test_a_critical_alarm_makes_room_for_the_prefix_of_its_profile() -> None:
    """The pool is full of lesser requests when a profile is used that is not computed."""
    plant = Plant(blocks=16, context={"pool_mb": 1, "max_sequences": 2, "max_waiting": 4})
    start(plant, "low", max_tokens=100)
    start(plant, "lower", max_tokens=100, severity=0)
    plant.sessions.register(RegisterProfile(profile="q", tokens=[5] * 40, window=64))
    plant.sessions.submit(submit([5] * 40, "minor", profile="q", severity=2))
    assert plant.take("verifier", SeqOpen) == []
    plant.sessions.submit(submit([5] * 40, "critical", profile="q", severity=3))
    compute_prefix(plant, plant.take("verifier", SeqOpen)[0])
    assert [one.request_id for one in plant.take("gateway", Accepted)][-1:] == ["critical"]
    assert "lower" in plant.sessions.waiting
    assert plant.ledger.check_integrity() == []
    plant.close()
