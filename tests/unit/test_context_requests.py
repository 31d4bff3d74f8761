"""A request's life: answered, replayed, replaced, cancelled, ended by its deadline."""

from __future__ import annotations

from typing import Any

import pytest

from shared.bus.messages.requests import Accepted, Finished, Rejected, Sampling, Submit, Tokens
from shared.bus.messages.sequences import SeqClose, SeqOpen, SeqState
from tests.unit.context_plant import VERIFIER, Decoder, Plant, start, submit


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


def test_the_answer_ends_at_max_tokens(plant: Plant) -> None:
    decoder = start(plant, max_tokens=3)
    decoder.commit(7)
    decoder.commit(8, 9)
    assert plant.take("gateway", Finished)[0].reason == "length"
    assert plant.ledger.live == {}


def test_a_closed_answer_comes_with_its_last_tokens_and_a_cancelled_one_without(plant: Plant) -> None:
    """Draft keeps finished answers, and no SeqState tells what the last commit said."""
    start(plant, max_tokens=3).commit(7, 8, 9)
    closed = plant.take("verifier", SeqClose)
    start(plant, "r2").commit(7, finish="stop")
    closed += plant.take("verifier", SeqClose)
    start(plant, "r3").commit(7)
    plant.sessions.cancel("r3")
    closed += plant.take("verifier", SeqClose)
    assert [(m.reason, m.tokens) for m in closed] == [("length", [7, 8, 9]), ("stop", [7]), ("cancelled", [])]


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


@pytest.mark.parametrize(
    "change",
    [{"prompt": 9}, {"max_tokens": 4}, {"sampling": Sampling(temperature=0.5)}, {"stop": ["."]}],
    ids=["prompt", "length", "sampling", "stop"],
)
def test_a_live_request_submitted_with_other_content_is_replaced(
    plant: Plant, change: dict[str, Any]
) -> None:
    """The gateway was restarted with an edited profile: the old answer ends, no token of it comes."""
    old = start(plant)
    old.commit(7)
    plant.sessions.gateway_joined()
    plant.sent["gateway"].clear()
    plant.sessions.submit(submit(plant.profile(), "r1", **change))
    closed = [message.seq for message in plant.sent["verifier"] if isinstance(message, SeqClose)]
    assert closed == [old.seq]
    new = Decoder(plant, plant.take("verifier", SeqOpen)[-1])
    assert new.seq != old.seq
    old.commit(8)
    new.commit(9, finish="stop")
    assert [type(m) for m in plant.sent["gateway"]] == [Accepted, Tokens, Finished]
    assert [(m.index, m.tokens) for m in plant.take("gateway", Tokens)] == [(0, [9])]


def test_a_request_replaced_by_one_that_is_refused_leaves_its_place_to_those_who_wait(plant: Plant) -> None:
    """Three are answered at once; the fourth starts."""
    for name in ("r1", "r2", "r3"):
        start(plant, name)
    plant.sessions.submit(submit(plant.profile(), "r4"))
    assert "r4" in plant.sessions.waiting
    plant.sessions.submit(submit(plant.profile(), "r1", prompt=65))
    assert [m.request_id for m in plant.take("gateway", Rejected)] == ["r1"]
    assert "r4" not in plant.sessions.waiting


def test_a_failed_sequence_finishes_with_the_reason(plant: Plant) -> None:
    decoder = start(plant)
    plant.sessions.commit_failed(decoder.seq, 0, "broken table")
    finished = plant.take("gateway", Finished)[0]
    assert (finished.reason, finished.detail) == ("failed", "broken table")


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


def test_finished_requests_are_remembered_up_to_a_bound(plant: Plant) -> None:
    for i in range(plant.ledger.store.slots + 20):
        start(plant, f"r{i}").commit(7, finish="stop")
    assert len(plant.ledger.finished) < plant.ledger.store.slots


def test_a_live_request_ends_at_its_deadline_with_what_it_has(plant: Plant) -> None:
    prefix = plant.profile()
    plant.sent["verifier"].clear()
    request: Submit = submit(prefix, "r", deadline_s=5.0)
    plant.sessions.submit(request)
    Decoder(plant, plant.take("verifier", SeqOpen)[-1]).commit(7)
    plant.now += 4.9
    plant.sessions.expire()
    assert plant.take("gateway", Finished) == []
    plant.now += 0.2
    plant.sessions.expire()
    finished = plant.take("gateway", Finished)[0]
    assert (finished.reason, finished.answer_tokens) == ("deadline", 1)
    plant.sessions.submit(request)
    assert plant.take("gateway", Finished)[0].reason == "deadline"
