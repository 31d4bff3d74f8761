"""What the stream says of an answer that comes once, again, or again and different."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.request import Request


def request() -> Request:
    nothing: Any = None
    return Request(nothing, nothing, "a", nothing, nothing, 10.0, 10.5, 10.5)


def read(stream: list[tuple[int, str]]) -> str:
    """What a reader has who puts each text behind as many characters as its index says."""
    text = ""
    for index, more in stream:
        assert index <= len(text)
        text = text[:index] + more
    return text


_answers = st.lists(st.lists(st.text("ab", max_size=3), max_size=6), min_size=1, max_size=4)


@given(_answers)
def test_readers_of_the_stream_have_the_last_answer(answers: list[list[str]]) -> None:
    """However often it began anew; only an answer that is a beginning of the one before leaves more there."""
    one = request()
    stream = []
    for parts in answers:
        one.restart(None)  # type: ignore[arg-type]
        stream += [delta for part in parts if (delta := one.push(part)) is not None]
    assert one.text == "".join(answers[-1])
    assert read(stream).startswith(one.text)
    assert read(stream) == one.streamed


def test_a_replay_says_nothing_twice() -> None:
    """Context sends the tokens again from the first; the stream goes on where it was."""
    one = request()
    assert one.push("check the ") == (0, "check the ")
    one.restart(None)  # type: ignore[arg-type]
    assert one.push("check ") is None
    assert one.push("the pump") == (10, "pump")


def test_times_are_since_the_alarm_arrived() -> None:
    """Milliseconds; without a token the first one is now."""
    timing = request().timing(12.0)
    assert (timing.queued_ms, timing.ttft_ms, timing.duration_ms) == (500.0, 2000.0, 2000.0)
