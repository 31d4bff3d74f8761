"""What a context that was killed finds again."""

from __future__ import annotations

from typing import Any

from shared.bus.messages.requests import Accepted, Finished, RegisterProfile, Sampling, Tokens
from shared.bus.messages.sequences import Commit, SeqOpen
from tests.unit.context_plant import VERIFIER, Plant, start, submit


def test_after_kill_9_sequences_go_on_where_they_were(plant: Plant) -> None:
    sampling = Sampling(temperature=0.7, top_p=0.8, seed=2**53 - 1)
    how: dict[str, Any] = {"sampling": sampling, "stop": ["。", "###"]}
    decoder = start(plant, **how)
    decoder.commit(7)
    decoder.commit(8, 9)
    before = plant.ledger.live[decoder.seq].snapshot()
    plant.crash()
    told = plant.writers.joined(VERIFIER)
    assert told == [before]
    decoder.commit(10)
    plant.sessions.submit(submit(plant.profile(), "r1", **how))
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


def test_a_damaged_counter_of_sequences_is_survived(plant: Plant) -> None:
    decoder = start(plant)
    plant.segment.next_sequence = 2**64 - 1
    plant.crash()
    assert start(plant, "r2").seq > decoder.seq
