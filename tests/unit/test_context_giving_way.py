"""Nothing that stays for ever keeps an alarm from its answer: streams give way, pinned prefixes are said."""

from __future__ import annotations

from typing import Any

from shared.bus.messages.requests import Accepted, RegisterProfile, Rejected, StreamAppend
from shared.bus.messages.sequences import Commit, SeqClose, SeqOpen
from tests.unit.context_plant import VERIFIER, Plant, compute_prefix, submit

WIDE: dict[str, Any] = {"profile": "wide", "prompt": 100, "max_tokens": 60}


def plant_with_streams(names: str, blocks: int) -> tuple[Plant, list[int]]:
    """Computed streams of "p", the first one silent for longest, and the prefix of a wider profile."""
    plant = Plant(blocks=blocks, record_tokens=400)
    wide = plant.profile("wide", sink=20, window=256)
    plant.profile()
    for serial, name in enumerate(names):
        plant.now += 1
        plant.sessions.streams.append(
            StreamAppend(stream=name, profile="p", serial=serial, tokens=[100 + serial] * 60)
        )
        compute(plant, plant.take("verifier", SeqOpen)[-1].seq)
    return plant, wide


def compute(plant: Plant, seq: int) -> None:
    """The verifier computes what is pending, but for a request's last token."""
    sequence = plant.ledger.live[seq]
    while (pending := sequence.pending - (sequence.kind == "request")) > 0:
        written = min(16, pending)
        commit = Commit(seq=seq, epoch=sequence.epoch, kv_len=sequence.kv_len, written=written, tokens=[])
        plant.sessions.commit(commit)


def streams(plant: Plant) -> set[str]:
    return {stream.stream for stream in plant.sessions.streams.all()}


def test_streams_end_for_an_alarm_that_finds_no_room_beside_them_the_longest_silent_first() -> None:
    plant, wide = plant_with_streams("abc", blocks=28)
    plant.sessions.submit(submit(wide, **WIDE))
    assert streams(plant) == {"b", "c"}
    assert [message.request_id for message in plant.take("gateway", Accepted)] == ["r1"]
    assert plant.ledger.check_integrity() == []
    plant.close()


def test_the_alarm_waits_until_the_writers_have_let_go_of_the_stream() -> None:
    plant, wide = plant_with_streams("abc", blocks=28)
    plant.writers.joined(VERIFIER)
    plant.sessions.submit(submit(wide, **WIDE))
    assert plant.take("gateway", Accepted) == []
    closed = plant.take("verifier", SeqClose)
    assert len(closed) == 1
    plant.sessions.admit()  # nothing more ends meanwhile
    assert streams(plant) == {"b", "c"}
    plant.writers.released(VERIFIER, closed[0].seq)
    assert [message.request_id for message in plant.take("gateway", Accepted)] == ["r1"]
    plant.close()


def test_streams_do_not_end_while_an_answer_will_make_room() -> None:
    plant, wide = plant_with_streams("ab", blocks=24)
    plant.sessions.submit(submit(wide, "first", **WIDE))
    before = streams(plant)
    plant.sessions.submit(submit(wide, "second", **WIDE))
    assert streams(plant) == before
    assert "second" in plant.sessions.waiting
    plant.sessions.cancel("first")
    assert "second" not in plant.sessions.waiting
    plant.close()


def test_a_prefix_that_an_alarm_needs_ends_streams_too() -> None:
    plant, _ = plant_with_streams("ab", blocks=26)
    late = list(range(200))
    plant.sessions.register(RegisterProfile(profile="late", tokens=late, window=64))
    assert streams(plant) == {"a", "b"}
    plant.sessions.submit(submit(late, profile="late"))
    assert streams(plant) == {"b"}
    compute_prefix(plant, plant.take("verifier", SeqOpen)[-1])
    assert [message.request_id for message in plant.take("gateway", Accepted)] == ["r1"]
    plant.close()


def test_an_alarm_for_which_pinned_prefixes_leave_no_room_is_refused_for_ever() -> None:
    """The gateway says so in the place of an answer; it would ask again for ever otherwise."""
    plant = Plant(blocks=14, record_tokens=400)
    wide = plant.profile("wide", sink=20, window=256)
    plant.profile("other", sink=80)
    plant.sessions.submit(submit(wide, **WIDE))
    rejected = plant.take("gateway", Rejected)[0]
    assert rejected.retry_after_s is None
    assert "it may need 12 blocks" in rejected.reason
    assert "leave 9 of the pool's 14: raise context.pool_mb" in rejected.reason
    plant.close()
