"""Streams, questions on forks of them, preemption and deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.context.sequence import Sequence
from services.context.streams import SILENT_S
from shared.bus.messages.requests import (
    Accepted,
    Finished,
    RegisterProfile,
    Rejected,
    Sampling,
    StreamAppend,
    StreamAppended,
    StreamRefused,
    Tokens,
)
from shared.bus.messages.sequences import Commit, SeqAppend, SeqClose, SeqOpen
from tests.unit.context_plant import VERIFIER, Decoder, Plant, compute_prefix, submit

SAMPLED: dict[str, Any] = {"sampling": Sampling(temperature=0.8, seed=7), "stop": ["###"]}


@pytest.fixture
def plant() -> Iterator[Plant]:
    plant = Plant(record_tokens=200)
    yield plant
    assert plant.ledger.check_integrity() == []
    assert plant.ledger.available() >= 0
    plant.close()


def append(plant: Plant, serial: int, count: int = 10, stream: str = "line") -> None:
    tokens = [100 + (serial * 31 + i) % 700 for i in range(count)]
    plant.sessions.streams.append(StreamAppend(stream=stream, profile="p", serial=serial, tokens=tokens))


def the_stream(plant: Plant, name: str = "line") -> Sequence:
    return next(s for s in plant.ledger.live.values() if s.stream == name)


def compute(plant: Plant, name: str = "line") -> None:
    """The verifier computes what is pending."""
    stream = the_stream(plant, name)
    while stream.pending:
        written = min(16, stream.pending)
        commit = Commit(seq=stream.seq, epoch=stream.epoch, kv_len=stream.kv_len, written=written, tokens=[])
        plant.sessions.commit(commit)


def fill(plant: Plant, tokens: int) -> None:
    """A stream that holds so many tokens behind its prefix."""
    plant.profile()
    for serial in range(tokens // 10):
        append(plant, serial)
        compute(plant)


def ask(plant: Plant, name: str = "q", **fields: Any) -> Decoder:
    plant.sent["verifier"].clear()
    plant.sessions.submit(submit(plant.profile(), name, stream="line", **fields))
    return Decoder(plant, plant.take("verifier", SeqOpen)[-1])


def test_the_first_append_opens_a_stream_and_later_ones_extend_it(plant: Plant) -> None:
    plant.profile()
    append(plant, 1)
    opened = plant.take("verifier", SeqOpen)[0]
    assert (opened.max_tokens, opened.severity, len(opened.tokens), opened.kv_len) == (0, 0, 30, 20)
    append(plant, 2)
    (news,) = plant.take("verifier", SeqAppend)
    assert (news.known, len(news.tokens)) == (30, 10)
    assert [m.serial for m in plant.take("gateway", StreamAppended)] == [1, 2]


def test_an_append_that_comes_twice_changes_nothing(plant: Plant) -> None:
    fill(plant, 20)
    known = the_stream(plant).known
    append(plant, 1)
    assert the_stream(plant).known == known
    assert plant.take("gateway", StreamAppended)[-1].serial == 1


def test_a_stream_goes_on_for_ever_in_constant_memory(plant: Plant) -> None:
    fill(plant, 2000)
    stream = the_stream(plant)
    assert stream.kv_len == 2020
    assert len(stream.blocks) == 2 + stream.ring.capacity // 16
    assert len(stream.tokens) <= 200
    assert stream.tokens[-1] == 100 + (199 * 31 + 9) % 700


def test_positions_go_past_2_to_the_32(plant: Plant) -> None:
    fill(plant, 300)
    stream = the_stream(plant)
    shift = stream.ring.capacity * (2**32 // stream.ring.capacity - 1)
    stream.first += shift
    stream.kv_len += shift
    stream.prompt_len += shift
    for serial in range(100, 160):
        append(plant, serial)
        compute(plant)
    assert stream.kv_len > 2**32
    plant.crash()
    assert the_stream(plant).snapshot() == stream.snapshot()
    decoder = ask(plant)
    decoder.commit(5)
    assert plant.take("gateway", Tokens)[-1].tokens == [5]


def test_a_stream_survives_kill_9_with_its_serial(plant: Plant) -> None:
    fill(plant, 500)
    before = the_stream(plant).snapshot()
    plant.crash()
    assert the_stream(plant).snapshot() == before
    append(plant, 49)
    assert the_stream(plant).known == before.first + len(before.tokens)


def test_a_record_that_was_moving_when_context_was_killed_counts_once(plant: Plant) -> None:
    """Both the old and the new slot hold it."""
    fill(plant, 100)
    stream = the_stream(plant)
    clear, plant.ledger.store.clear = plant.ledger.store.clear, lambda slot: None  # type: ignore[method-assign]
    plant.ledger.forget_tokens(stream, 70)
    plant.ledger.store.clear = clear  # type: ignore[method-assign]
    plant.crash()
    assert the_stream(plant).snapshot() == stream.snapshot()
    assert len(plant.ledger.store.load()) == 2


def refused(plant: Plant) -> StreamRefused:
    return plant.take("gateway", StreamRefused)[-1]


def test_an_append_that_can_never_be_taken_says_why(plant: Plant) -> None:
    append(plant, 1)
    assert "unknown profile" in refused(plant).reason
    plant.profile()
    append(plant, 1, count=65)
    assert "append less" in refused(plant).reason
    plant.sessions.streams.append(StreamAppend(stream="x", profile="p", serial=1, tokens=[1000]))
    assert refused(plant).retry_after_s is None


def test_refused_appends_are_few_lines_in_the_log(plant: Plant) -> None:
    """The assets that find no place send their lines again for as long as the plant runs."""
    plant.profile()
    with capture_logs() as lines:
        for serial in range(200):
            append(plant, serial, count=65)
    assert [line["event"] for line in lines].count("append refused") == 1


def test_no_more_than_a_window_waits_to_be_computed(plant: Plant) -> None:
    plant.profile()
    append(plant, 1, count=40)
    append(plant, 2, count=40)
    late = refused(plant)
    assert late.retry_after_s is not None
    assert "still to be computed" in late.reason
    compute(plant)
    append(plant, 2, count=40)
    assert plant.take("gateway", StreamAppended)[-1].serial == 2


def test_streams_are_bounded_in_number_and_by_the_pool() -> None:
    plant = Plant(context={"pool_mb": 1, "max_sequences": 2, "max_waiting": 4, "max_streams": 2})
    plant.profile()
    for name in "abc":
        append(plant, 1, stream=name)
    assert "max_streams" in refused(plant).reason
    plant.close()
    small = Plant(blocks=14)
    small.profile()
    append(small, 1, stream="a")
    append(small, 1, stream="b")
    late = refused(small)
    assert "14" in late.reason
    assert late.retry_after_s is not None
    small.close()


def test_a_new_assets_stream_takes_the_place_of_the_one_that_is_silent_for_the_longest_time() -> None:
    """Not of one that was asked lately, and of none that paused only for a moment."""
    plant = Plant(context={"pool_mb": 1, "max_sequences": 2, "max_waiting": 4, "max_streams": 2})
    plant.profile()
    for name in "ab":
        append(plant, 1, stream=name)
        compute(plant, name)
    plant.now += SILENT_S / 2
    append(plant, 1, stream="c")
    assert "silent" in refused(plant).reason
    plant.sessions.submit(submit(plant.profile(), stream="a"))
    plant.now += SILENT_S / 2
    append(plant, 1, stream="c")
    plant.now += SILENT_S / 2
    append(plant, 1, stream="d")
    assert {stream.stream for stream in plant.sessions.streams.all()} == {"c", "d"}
    plant.close()


def test_silent_streams_make_room_in_a_pool_that_is_full() -> None:
    plant = Plant(blocks=19)
    plant.profile()
    append(plant, 1, stream="a")
    compute(plant, "a")
    plant.now += SILENT_S
    append(plant, 1, stream="b")
    assert refused(plant).retry_after_s is not None
    append(plant, 1, stream="b")
    assert [stream.stream for stream in plant.sessions.streams.all()] == ["b"]
    plant.close()


def test_closing_a_stream_gives_its_memory_back(plant: Plant) -> None:
    fill(plant, 300)
    plant.sessions.streams.close("line")
    pool, cache = plant.ledger.pool, plant.ledger.cache
    assert pool.free + len(cache) + len(plant.ledger.pins["p"]) == pool.total


def test_another_version_of_the_profile_ends_its_streams_and_serials_begin_anew(plant: Plant) -> None:
    fill(plant, 50)
    seq = the_stream(plant).seq
    plant.sessions.register(RegisterProfile(profile="p", tokens=[5] * 20, window=64))
    assert seq in [m.seq for m in plant.take("verifier", SeqClose)]
    opened = next(s for s in plant.ledger.live.values() if s.kind == "prefix")
    plant.sessions.commit(Commit(seq=opened.seq, epoch=0, kv_len=0, written=16, tokens=[]))
    plant.sessions.commit(Commit(seq=opened.seq, epoch=1, kv_len=16, written=4, tokens=[]))
    append(plant, 0)
    assert the_stream(plant).tokens[:20] == [5] * 20


def test_a_question_shares_the_streams_blocks_and_leaves_it_alone(plant: Plant) -> None:
    fill(plant, 300)
    stream = the_stream(plant)
    before, used = stream.snapshot(), plant.ledger.pool.free
    decoder = ask(plant, prompt=5)
    child = plant.ledger.live[decoder.seq]
    assert stream.snapshot() == before
    assert child.kv_len == stream.kv_len
    assert child.tokens[-5:] == [10, 11, 12, 13, 14]
    assert used - plant.ledger.pool.free < len(child.blocks) // 2
    for token in range(7):
        decoder.commit(token)
    assert stream.snapshot() == before


def test_a_question_waits_until_its_stream_is_computed_and_holds_appends_back(plant: Plant) -> None:
    fill(plant, 50)
    append(plant, 9, count=20)
    plant.sessions.submit(submit(plant.profile(), "q", stream="line"))
    assert "q" in plant.sessions.waiting
    append(plant, 10)
    assert "question waits" in refused(plant).reason
    compute(plant)
    assert plant.take("gateway", Accepted)[-1].request_id == "q"


def test_a_question_on_an_unknown_stream_stands_on_the_profile_alone(plant: Plant) -> None:
    plant.profile()
    decoder = ask(plant)
    assert not plant.ledger.live[decoder.seq].forked


def test_a_question_submitted_again_is_known(plant: Plant) -> None:
    fill(plant, 300)
    ask(plant).commit(7)
    plant.crash()
    plant.sessions.submit(submit(plant.profile(), "q", stream="line"))
    assert plant.take("gateway", Tokens)[-1].tokens == [7]


# --- preemption ---


def three(plant: Plant, **severities: int) -> dict[str, Decoder]:
    """Live requests that fill all places."""
    prefix = plant.profile()
    found = {}
    for name, severity in severities.items():
        plant.now += 1
        plant.sent["verifier"].clear()
        plant.sessions.submit(submit(prefix, name, severity=severity, max_tokens=40, **SAMPLED))
        found[name] = Decoder(plant, plant.take("verifier", SeqOpen)[-1])
    return found


def critical(plant: Plant, name: str = "critical") -> None:
    plant.sessions.submit(submit(plant.profile(), name, severity=3, max_tokens=40))


def live(plant: Plant) -> set[str]:
    return {s.request_id for s in plant.ledger.live.values() if s.request_id}


def test_a_critical_request_preempts_the_youngest_of_the_least_severe(plant: Plant) -> None:
    three(plant, a=0, b=0, c=1)
    critical(plant)
    assert live(plant) == {"a", "c", "critical"}
    assert "b" in plant.sessions.waiting


def test_a_preempted_request_goes_on_where_it_was(plant: Plant) -> None:
    decoders = three(plant, a=2, b=2, c=2)
    for token in (1, 2, 3):
        decoders["c"].commit(token)
    critical(plant)
    assert "c" not in live(plant)
    plant.sent["gateway"].clear()
    plant.sent["verifier"].clear()
    plant.sessions.cancel("critical")
    (opened,) = plant.take("verifier", SeqOpen)
    assert (opened.tokens[-3:], opened.prompt_len, opened.max_tokens) == ([1, 2, 3], 25, 40)
    assert {"sampling": opened.sampling, "stop": opened.stop} == SAMPLED
    assert plant.take("gateway", Accepted) == []
    Decoder(plant, opened).commit(4)
    assert [(m.index, m.tokens) for m in plant.take("gateway", Tokens)] == [(3, [4])]


def test_critical_requests_and_questions_on_streams_are_not_preempted(plant: Plant) -> None:
    fill(plant, 300)
    ask(plant, severity=0, max_tokens=40)
    three(plant, b=3, c=3)
    critical(plant)
    assert live(plant) == {"q", "b", "c"}


@pytest.mark.parametrize(("first", "window"), [(800, 64), (900, 48)])
def test_who_could_not_begin_again_on_the_same_prefix_is_not_preempted(
    plant: Plant, first: int, window: int
) -> None:
    """The profile is another now: computed again, its answer would be one to another prompt."""
    three(plant, a=0, b=0, c=0)
    changed = [first + i for i in range(20)]
    plant.sessions.register(RegisterProfile(profile="p", tokens=changed, window=window))
    for opened in plant.take("verifier", SeqOpen):
        compute_prefix(plant, opened)
    plant.sessions.submit(submit(changed, "critical", severity=3, max_tokens=40))
    assert live(plant) == {"a", "b", "c"}
    plant.sessions.cancel("a")
    assert live(plant) == {"b", "c", "critical"}


def test_nobody_is_preempted_for_nothing_while_blocks_are_on_their_way(plant: Plant) -> None:
    plant.writers.joined(VERIFIER)
    three(plant, a=1, b=1, c=1)
    critical(plant)
    plant.sessions.admit()
    assert live(plant) == {"a", "b", "critical"} or live(plant) == {"a", "b"}
    assert plant.sessions.admitting.preempted == 1


def test_a_paused_request_can_be_cancelled_and_asked_for_again(plant: Plant) -> None:
    three(plant, a=1, b=1, c=1)["c"].commit(7)
    critical(plant)
    plant.sessions.gateway_joined()
    plant.sent["gateway"].clear()
    plant.sessions.submit(submit(plant.profile(), "c", severity=1, max_tokens=40, **SAMPLED))
    assert [m.tokens for m in plant.take("gateway", Tokens)] == [[7]]
    plant.sessions.cancel("c")
    finished = plant.take("gateway", Finished)[-1]
    assert (finished.reason, finished.answer_tokens) == ("cancelled", 1)


# --- deadlines ---


def test_a_waiting_request_ends_at_its_deadline(plant: Plant) -> None:
    three(plant, a=3, b=3, c=3)
    plant.sessions.submit(submit(plant.profile(), "late", deadline_s=5.0))
    plant.now += 6
    plant.sessions.expire()
    assert [(m.request_id, m.reason) for m in plant.take("gateway", Finished)] == [("late", "deadline")]
    assert plant.take("gateway", Rejected) == []
    assert len(plant.sessions.waiting) == 0
