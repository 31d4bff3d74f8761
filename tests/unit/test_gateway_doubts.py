"""Fields that are not understood are in the log: for every source, but not for every alarm."""

from __future__ import annotations

from structlog.testing import capture_logs

from services.gateway.alarm import Alarm
from services.gateway.doubts import MAX_SOURCES, DoubtLog

ODD = Alarm(text="hot", source="M1", doubts=('"limit" true cannot be used and is left out',))


def test_a_source_is_named_at_its_first_doubtful_alarm_and_at_powers_of_ten() -> None:
    log = DoubtLog()
    with capture_logs() as lines:
        for _ in range(120):
            log.note("plant/1", ODD)
    assert [line["alarms"] for line in lines] == [1, 10, 100]
    assert lines[0]["source"] == "M1"
    assert lines[0]["fields"] == ODD.doubts[0]


def test_every_source_is_named_until_there_are_too_many() -> None:
    """Names that somebody makes up do not fill the log or the memory."""
    log = DoubtLog()
    with capture_logs() as lines:
        for number in range(MAX_SOURCES + 1000):
            log.note(f"plant/{number}", Alarm(text="hot", doubts=ODD.doubts))
    assert len(lines) == MAX_SOURCES + 4
    assert lines[MAX_SOURCES - 1]["source"] == f"plant/{MAX_SOURCES - 1}"
    assert lines[-1]["source"] == "(others)"


def test_an_alarm_without_doubts_is_no_line() -> None:
    log = DoubtLog()
    with capture_logs() as lines:
        log.note("plant/1", Alarm(text="hot"))
    assert lines == []
