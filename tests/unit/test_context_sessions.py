"""What context answers: admission, idempotence, commits, cancellation, profiles, recovery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from context_plant import Decoder, Plant, compute_prefix, states, submit

from services.context.sequence import Ring
from shared.bus.messages import (
    Accepted,
    Commit,
    Finished,
    RegisterProfile,
    Rejected,
    SeqClose,
    SeqOpen,
    SeqState,
    Tokens,
)

VERIFIER = ("verifier", 4711)


@pytest.fixture
def plant() -> Iterator[Plant]:
    plant = Plant()
    yield plant
    assert plant.ledger.check_integrity() == []
    plant.close()


def start(plant: Plant, name: str = "r1", **fields: object) -> Decoder:
    """A request that has been admitted; the profile is registered when it is not yet."""
    known = plant.sessions.profiles.get("p")
    prefix = known.tokens if known else plant.profile()
    plant.sent["verifier"].clear()
    plant.sessions.submit(submit(prefix, name, **fields))
    return Decoder(plant, plant.take("verifier", SeqOpen)[-1])


def test_a_request_runs_from_submit_to_finished(plant: Plant) -> None:
    decoder = start(plant)
    decoder.commit(7)
    decoder.commit(8, 9)
    decoder.commit(finish="stop")
    kinds = [type(message) for message in plant.sent["gateway"]]
    assert kinds == [Accepted, Tokens, Tokens, Finished]
    tokens = [(m.index, m.tokens) for m in plant.sent["gateway"] if isinstance(m, Tokens)]
    assert tokens == [(0, [7]), (1, [8, 9])]
    finished = plant.take("gateway", Finished)[0]
    assert (finished.reason, finished.answer_tokens, finished.prompt_tokens) == ("stop", 3, 25)
    assert [type(m) for m in plant.sent["verifier"]] == [SeqState, SeqState, SeqClose]


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


def test_the_answer_ends_at_max_tokens(plant: Plant) -> None:
    decoder = start(plant, max_tokens=3)
    decoder.commit(7)
    decoder.commit(8, 9)
    assert plant.take("gateway", Finished)[0].reason == "length"
    assert plant.ledger.live == {}


def test_submitting_a_live_request_again_replays_its_tokens_from_the_first(plant: Plant) -> None:
    decoder = start(plant)
    decoder.commit(7)
    decoder.commit(8)
    plant.sent["gateway"].clear()
    plant.sessions.submit(submit(plant.profile(), "r1"))
    assert [type(m) for m in plant.sent["gateway"]] == [Accepted, Tokens]
    replay = plant.take("gateway", Tokens)[0]
    assert (replay.index, replay.tokens) == (0, [7, 8])
    assert len(plant.ledger.live) == 1


def test_submitting_a_finished_request_again_replays_it_whole(plant: Plant) -> None:
    decoder = start(plant)
    decoder.commit(7)
    decoder.commit(8, finish="stop")
    plant.sent["gateway"].clear()
    plant.sessions.submit(submit(plant.profile(), "r1"))
    assert [type(m) for m in plant.sent["gateway"]] == [Accepted, Tokens, Finished]
    assert plant.ledger.live == {}


def test_a_gateway_that_joins_again_gets_no_tokens_before_it_has_asked_for_them(plant: Plant) -> None:
    """Otherwise there would be a gap between what it had and what comes."""
    decoder = start(plant)
    decoder.commit(7)
    plant.sessions.gateway_joined()
    plant.sent["gateway"].clear()
    decoder.commit(8)
    assert plant.sent["gateway"] == []
    plant.sessions.submit(submit(plant.profile(), "r1"))
    decoder.commit(9)
    assert [(m.index, m.tokens) for m in plant.take("gateway", Tokens)] == [(0, [7, 8]), (2, [9])]


def test_the_id_of_a_finished_request_can_be_used_for_another_prompt(plant: Plant) -> None:
    start(plant).commit(7, finish="stop")
    plant.sessions.submit(submit(plant.profile(), "r1", prompt=9))
    assert len(plant.ledger.live) == 1


def test_the_id_of_a_live_request_is_refused_for_another_prompt(plant: Plant) -> None:
    start(plant)
    plant.sessions.submit(submit(plant.profile(), "r1", prompt=9))
    assert plant.take("gateway", Rejected)[0].retry_after_s is None


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


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 5},
        {"kv_len": 3},
        {"written": 4},
        {"written": 500},
        {"tokens": []},
        {"tokens": [1000]},
        {"tokens": [1, 2, 3]},
        {"tokens": [1] * 9, "written": 13},
    ],
)
def test_a_commit_that_does_not_fit_is_dropped_and_answered_with_a_snapshot(
    plant: Plant, change: dict[str, object]
) -> None:
    decoder = start(plant)
    good = {"seq": decoder.seq, "epoch": 0, "kv_len": 20, "written": 5, "tokens": [7]}
    before = plant.ledger.live[decoder.seq].snapshot()
    plant.sessions.commit(Commit.model_validate({**good, **change}))
    assert plant.take("verifier", SeqOpen) == [before]
    assert plant.take("gateway", Tokens) == []
    plant.sessions.commit(Commit.model_validate(good))
    assert len(states(plant.sent["verifier"])) == 1


def test_a_commit_for_an_unknown_sequence_is_answered_with_its_close(plant: Plant) -> None:
    plant.sessions.commit(Commit(seq=99, epoch=0, kv_len=0, written=1, tokens=[]))
    assert [m.seq for m in plant.take("verifier", SeqClose)] == [99]


def test_blocks_are_reserved_for_two_commits_ahead(plant: Plant) -> None:
    decoder = start(plant, max_tokens=60)
    sequence = plant.ledger.live[decoder.seq]
    for token in range(40):
        assert sequence.covers(min(sequence.kv_len + 2 * plant.limits.step, sequence.end))
        decoder.commit(token)


def test_a_failed_sequence_finishes_with_the_reason(plant: Plant) -> None:
    decoder = start(plant)
    plant.sessions.commit_failed(decoder.seq, 0, "broken table")
    finished = plant.take("gateway", Finished)[0]
    assert (finished.reason, finished.detail) == ("failed", "broken table")


def test_a_prefix_that_fails_refuses_its_requests_and_is_tried_again_when_asked(plant: Plant) -> None:
    plant.sessions.register(RegisterProfile(profile="p", tokens=[1] * 20, window=64))
    plant.sessions.submit(submit([1] * 20))
    opened = plant.take("verifier", SeqOpen)[0]
    plant.sessions.commit_failed(opened.seq, 0, "no")
    assert plant.take("gateway", Rejected)[0].retry_after_s is not None
    plant.sessions.submit(submit([1] * 20))
    compute_prefix(plant, plant.take("verifier", SeqOpen)[0])
    assert plant.take("gateway", Accepted)


def test_cancelling_frees_a_sequence_that_nobody_writes_into_at_once(plant: Plant) -> None:
    start(plant, "keep")
    free = plant.ledger.pool.free
    start(plant, "r1")
    plant.sessions.cancel("r1")
    assert plant.ledger.pool.free == free
    assert plant.take("gateway", Finished)[-1].reason == "cancelled"


def test_cancelled_blocks_wait_for_the_writer_that_may_still_commit(plant: Plant) -> None:
    start(plant, "keep")
    free = plant.ledger.pool.free
    plant.writers.joined(VERIFIER)
    decoder = start(plant)
    plant.sessions.cancel("r1")
    assert plant.ledger.pool.free < free
    plant.writers.released(("verifier", 1), decoder.seq)
    assert plant.ledger.pool.free < free
    plant.writers.released(VERIFIER, decoder.seq)
    assert plant.ledger.pool.free == free


def test_a_dead_writer_holds_nothing(plant: Plant) -> None:
    start(plant, "keep")
    free = plant.ledger.pool.free
    plant.writers.joined(VERIFIER)
    start(plant)
    plant.sessions.cancel("r1")
    plant.writers.lost(VERIFIER)
    assert plant.ledger.pool.free == free


def test_a_lost_writer_that_still_maps_the_pool_holds_until_it_comes_back(plant: Plant) -> None:
    start(plant, "keep")
    free = plant.ledger.pool.free
    alive = True
    plant.segment.is_writing = lambda writer: alive  # type: ignore[method-assign]
    plant.writers.joined(VERIFIER)
    decoder = start(plant)
    plant.writers.lost(VERIFIER)
    plant.sessions.cancel("r1")
    plant.writers.bury()
    assert plant.ledger.pool.free < free
    told = plant.writers.joined(VERIFIER)
    assert [m.seq for m in told if isinstance(m, SeqClose)] == [decoder.seq]
    plant.writers.released(VERIFIER, decoder.seq)
    assert plant.ledger.pool.free == free


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


def test_a_request_that_waits_can_be_sent_again(plant: Plant) -> None:
    for name in "abc":
        start(plant, name)
    prefix = plant.profile()
    for _ in range(9):
        plant.sessions.submit(submit(prefix, "w"))
    assert len(plant.sessions.waiting) == 1
    assert plant.take("gateway", Rejected) == []


def test_a_damaged_counter_of_sequences_is_survived(plant: Plant) -> None:
    decoder = start(plant)
    plant.segment.next_sequence = 2**64 - 1
    plant.crash()
    assert start(plant, "r2").seq > decoder.seq


def test_a_profile_larger_than_the_pool_is_refused_with_the_reason() -> None:
    plant = Plant(blocks=4)
    plant.sessions.register(RegisterProfile(profile="p", tokens=[1] * 100, window=64))
    plant.sessions.submit(submit([1] * 100))
    assert "pool has 4 blocks" in plant.take("gateway", Rejected)[0].reason
    plant.close()


def test_the_drafts_plane_of_a_shared_prefix_is_filled_once(plant: Plant) -> None:
    plant.joined.add("draft")
    first = start(plant)
    plant.sessions.plane_filled(first.seq, 23)
    start(plant, "r2")
    opened = plant.take("draft", SeqOpen)[-1]
    assert opened.draft_kv_len == 20
    plant.sessions.plane_filled(first.seq, 99)
    assert plant.ledger.live[first.seq].draft_kv_len == 23


def test_after_kill_9_sequences_go_on_where_they_were(plant: Plant) -> None:
    decoder = start(plant)
    decoder.commit(7)
    decoder.commit(8, 9)
    before = plant.ledger.live[decoder.seq].snapshot()
    plant.crash()
    told = plant.writers.joined(VERIFIER)
    assert told == [before]
    decoder.commit(10)
    plant.sessions.submit(submit(plant.profile(), "r1"))
    assert plant.take("gateway", Tokens)[-1].tokens == [7, 8, 9, 10]


def test_after_kill_9_finished_requests_and_prefixes_are_known(plant: Plant) -> None:
    start(plant).commit(7, finish="stop")
    plant.crash()
    plant.sessions.submit(submit([900 + i for i in range(20)], "r1"))
    assert [type(m) for m in plant.sent["gateway"]] == [Accepted, Tokens, Finished]
    plant.sent["verifier"].clear()
    assert plant.profile()
    assert not plant.sent["verifier"]
    assert start(plant, "r2").kv_len == 20


def test_after_kill_9_new_sequences_get_new_ids(plant: Plant) -> None:
    first = start(plant).seq
    plant.crash()
    assert start(plant, "r2").seq > first


def test_after_kill_9_a_prefix_is_computed_to_its_end(plant: Plant) -> None:
    plant.sessions.register(RegisterProfile(profile="p", tokens=[1] * 40, window=64))
    opened = plant.take("verifier", SeqOpen)[0]
    plant.sessions.commit(Commit(seq=opened.seq, epoch=0, kv_len=0, written=16, tokens=[]))
    plant.crash()
    plant.sessions.commit(Commit(seq=opened.seq, epoch=1, kv_len=16, written=16, tokens=[]))
    plant.sessions.commit(Commit(seq=opened.seq, epoch=2, kv_len=32, written=8, tokens=[]))
    assert len(plant.ledger.pins["p"]) == 3


def test_a_record_that_contradicts_another_is_dropped(plant: Plant) -> None:
    start(plant, "a")
    start(plant, "b")
    one, two = plant.ledger.live.values()
    two.blocks[-1] = one.blocks[-1]
    plant.ledger.save(two)
    plant.crash()
    assert [s.request_id for s in plant.ledger.live.values()] == ["a"]


def test_finished_requests_are_remembered_up_to_a_bound(plant: Plant) -> None:
    for i in range(plant.ledger.store.slots + 20):
        start(plant, f"r{i}").commit(7, finish="stop")
    assert len(plant.ledger.finished) < plant.ledger.store.slots


def test_slots_never_overlap_within_what_is_visible() -> None:
    ring = Ring.of(sink=20, window=64, longest_commit=16)
    assert (ring.capacity, ring.sink_blocks) == (96, 2)
    for length in range(20, 500):
        visible = [*range(20), *range(max(20, length - 63), length + 32)]
        slots = [ring.slot(position) for position in visible]
        assert len(set(slots)) == len(slots)
        assert max(slots) < 16 * ring.table_size(length + 32)
