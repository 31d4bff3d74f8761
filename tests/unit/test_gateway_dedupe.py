"""Which message repeats which: double answers are a nuisance, a lost alarm is a fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.dedupe import Arrival, Seen, digest, duplicate_of

NOW = 1_700_000_000.0
A, B = b"a" * 16, b"b" * 16
KEY = b"k" * 16


def arrival(received: float = NOW, **changes: object) -> Arrival:
    fields = {"digest": A, "id_key": None, "ts": None, "received": received, **changes}
    return Arrival(**fields)  # type: ignore[arg-type]


def seen(received: float = NOW, **changes: object) -> Seen:
    fields = {
        "seq": 1,
        "digest": A,
        "id_key": None,
        "ts": None,
        "received": received,
        "packet": None,
        **changes,
    }
    return Seen(**fields)  # type: ignore[arg-type]


def repeats(new: Arrival, old: Seen) -> bool:
    return duplicate_of(new, [old]) is old


def test_the_same_bytes_milliseconds_apart_are_one_alarm() -> None:
    """Also when the clock was set back in between; two seconds later it is a new one."""
    assert repeats(arrival(NOW + 0.005), seen())
    assert repeats(arrival(NOW - 0.5), seen())
    assert not repeats(arrival(NOW + 2.5), seen())
    assert not repeats(arrival(NOW + 0.005, digest=B), seen())


def test_a_redelivery_is_known_by_its_packet_id_until_it_was_acknowledged() -> None:
    """The same text again, hours later, with the DUP flag but another packet, is a new alarm."""
    again = arrival(NOW + 9000, redelivered=True, packet=17)
    assert repeats(again, seen(packet=17))
    assert not repeats(again, seen(packet=18))
    assert not repeats(again, seen(packet=None))


def test_a_retained_alarm_is_known_for_as_long_as_the_journal_knows_it() -> None:
    """It comes with every new session."""
    assert repeats(arrival(NOW + 1e6, retained=True), seen())
    assert not repeats(arrival(NOW + 1e6, retained=True, digest=B), seen())


def with_id(content: bytes = B, **changes: object) -> dict[str, Any]:
    return {"id_key": KEY, "content_key": content, "digest": content, **changes}


def test_an_id_with_the_same_content_is_one_alarm_for_an_hour() -> None:
    """Also with other bytes, such as keys in another order; afterwards the PLC may count from one again."""
    old = seen(**with_id())
    assert not repeats(arrival(NOW + 1, **with_id(id_key=A)), old)
    assert not repeats(arrival(NOW + 1, **with_id(A)), old)
    assert repeats(arrival(NOW + 1800, **with_id(digest=A)), old)
    assert not repeats(arrival(NOW + 4000, **with_id(digest=A)), old)
    assert not repeats(arrival(NOW + 4000, **with_id()), old)


@pytest.mark.parametrize("times", [(None, None, None), (100.0, 101.0, 101.5)])
def test_what_an_id_said_before_its_latest_alarm_is_a_new_alarm(times: tuple[float | None, ...]) -> None:
    """Critical, then information, then critical again; what repeats the latest is none."""
    critical = seen(seq=1, **with_id(A, ts=times[0]))
    information = seen(NOW + 10, seq=2, **with_id(B, ts=times[1]))
    again = arrival(NOW + 20, **with_id(A, ts=times[2]))
    assert duplicate_of(again, [information, critical]) is None
    latest = seen(NOW + 20, seq=3, **with_id(A, ts=times[2]))
    assert duplicate_of(again, [latest, information, critical]) is latest


def test_a_redelivery_of_an_earlier_alarm_of_an_id_is_known() -> None:
    """By its packet id, or its retain flag: it is that very message."""
    critical = seen(seq=1, packet=17, **with_id(A))
    history = [seen(NOW + 10, seq=2, **with_id(B)), critical]
    assert duplicate_of(arrival(NOW + 20, redelivered=True, packet=17, **with_id(A)), history) is critical
    assert duplicate_of(arrival(NOW + 20, redelivered=True, packet=18, **with_id(A)), history) is None
    assert duplicate_of(arrival(NOW + 20, retained=True, **with_id(A)), history) is critical


def test_times_tell_occurrences_with_the_same_id_apart() -> None:
    """A PLC that uses its alarm number as id."""
    old = seen(**with_id(ts=100.0))
    assert repeats(arrival(NOW + 86400, **with_id(ts=100.5)), old)
    assert not repeats(arrival(NOW + 10, **with_id(ts=110.0)), old)


@pytest.mark.parametrize("times", [(None, 100.0), (100.0, None)])
def test_one_with_a_time_and_one_without_are_two_alarms(times: tuple[float | None, ...]) -> None:
    old, new = times
    assert not repeats(arrival(NOW + 1, **with_id(A, ts=new)), seen(**with_id(ts=old)))
    assert not repeats(arrival(NOW + 1, **with_id(digest=A, ts=new)), seen(**with_id(ts=old)))


def test_digest_keeps_topic_and_content_apart() -> None:
    """ "ab" + "c" is not "a" + "bc"."""
    assert digest(b"ab", b"c") != digest(b"a", b"bc")
    assert digest(b"a", b"b") == digest(b"a", b"b")


@given(st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8))
def test_digests_are_equal_only_for_equal_parts(t1: bytes, c1: bytes, t2: bytes, c2: bytes) -> None:
    """As far as hypothesis finds."""
    assert (digest(t1, c1) == digest(t2, c2)) == ((t1, c1) == (t2, c2))


@given(st.floats(2.1, 1e7), st.booleans())
def test_other_bytes_without_an_id_are_never_a_duplicate(age: float, flag: bool) -> None:
    """Whatever the flags say."""
    new = arrival(NOW + age, digest=B, retained=flag, redelivered=flag, packet=3)
    assert duplicate_of(new, [seen(packet=3), seen(id_key=KEY)]) is None
