"""Commits: what fits advances a sequence, everything else changes nothing."""

from __future__ import annotations

import pytest

from services.context.sequence import Ring
from shared.bus.messages.requests import Tokens
from shared.bus.messages.sequences import Commit, SeqClose, SeqOpen
from tests.unit.context_plant import Plant, start, states


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


def test_the_drafts_plane_of_a_shared_prefix_is_filled_once(plant: Plant) -> None:
    plant.joined.add("draft")
    first = start(plant)
    plant.sessions.plane_filled(first.seq, 23)
    start(plant, "r2")
    opened = plant.take("draft", SeqOpen)[-1]
    assert opened.draft_kv_len == 20
    plant.sessions.plane_filled(first.seq, 99)
    assert plant.ledger.live[first.seq].draft_kv_len == 23


def test_slots_never_overlap_within_what_is_visible() -> None:
    ring = Ring.of(sink=20, window=64, longest_commit=16)
    assert (ring.capacity, ring.sink_blocks) == (96, 2)
    for length in range(20, 500):
        visible = [*range(20), *range(max(20, length - 63), length + 32)]
        slots = [ring.slot(position) for position in visible]
        assert len(set(slots)) == len(slots)
        assert max(slots) < 16 * ring.table_size(length + 32)
