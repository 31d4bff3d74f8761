"""What the gateway takes from the broker and what it publishes."""

from __future__ import annotations

import json
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.alarm import Alarm
from services.gateway.answers import (
    DEAD_LETTER_BYTES,
    Timing,
    dead_letter,
    error_answer,
    final_answer,
    stream_delta,
)
from services.gateway.connecting import backoff, topic_bytes
from services.gateway.events import Delivery
from services.gateway.intake import Intake, reroute
from services.gateway.journal import Journal, State
from services.gateway.routes import RouteTable
from shared.bus.messages.requests import Finished
from shared.config.credentials import read_password, tls_context
from shared.config.errors import RinglineError
from shared.config.settings import Gateway, Mqtt, Route, Settings

SETTINGS = Settings(
    routes=(Route(topic="plant/+/alarm", profile="p", answer="out/{1}"),),
    gateway=Gateway(dead_letter_topic="dead", max_payload_bytes=1000),
)


def delivery(payload: bytes, topic: bytes = b"plant/1/alarm", **changes: object) -> Delivery:
    fields = {
        "size": len(payload),
        "qos": 1,
        "retained": False,
        "redelivered": False,
        "packet": 1,
        "connection": 1,
    }
    return Delivery(topic=topic, payload=payload, **{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db", 100)


@pytest.fixture
def intake(journal: Journal) -> Intake:
    return Intake(SETTINGS, RouteTable(SETTINGS), journal)


def letters(journal: Journal) -> list[dict[str, object]]:
    return [json.loads(out.payload) for out in journal.outgoing(99) if out.outcome is State.DEAD]


def test_a_topic_that_is_not_utf8_is_a_dead_letter(intake: Intake, journal: Journal) -> None:
    """paho raises when such a topic is read; the bytes are taken from the exception."""
    message = paho.MQTTMessage(topic=b"plant/\xff/alarm")
    assert topic_bytes(message) == b"plant/\xff/alarm"
    intake.take(delivery(b"text", topic_bytes(message)))
    assert letters(journal)[0]["reason"] == "its topic is not UTF-8"
    assert letters(journal)[0]["topic"] == "plant/\\xff/alarm"


def test_a_message_without_a_route_is_a_dead_letter_but_never_a_dead_letter_itself(
    intake: Intake, journal: Journal
) -> None:
    """An old subscription of the session must not start a loop."""
    intake.take(delivery(b"text", b"elsewhere"))
    assert len(letters(journal)) == 1
    assert intake.take(delivery(b"text", b"dead")) is None
    assert len(letters(journal)) == 1


def test_a_large_payload_is_judged_by_its_true_size(intake: Intake, journal: Journal) -> None:
    """Only its beginning was kept."""
    intake.take(delivery(b"x" * 1001, size=10_000_000))
    letter = letters(journal)[0]
    assert "10000000 bytes" in str(letter["reason"])
    assert (letter["size"], letter["cut"]) == (10_000_000, True)


def test_redelivery_after_a_crash_between_commit_and_acknowledgement_is_one_alarm(
    intake: Intake, journal: Journal
) -> None:
    """The broker sends it again with the DUP flag and the same packet id."""
    seq = intake.take(delivery(b"pump stopped", packet=5))
    assert seq is not None
    assert intake.take(delivery(b"pump stopped", packet=5, redelivered=True)) is None
    assert len(journal.waiting(9)) == 1


_LONG = "A" * 300
_ONE = {"id": "same", "text": "pressure high", "severity": "info", "ts": 1.7e9}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"id": _LONG + "1"}, {"id": _LONG + "2"}),
        ({"id": "a\0b"}, {"id": "ab"}),
        ({"id": "a\rb"}, {"id": "a\nb"}),
        ({"id": " a"}, {"id": "a"}),
        ({"id": 1}, {"id": "1"}),
        (_ONE, {**_ONE, "severity": "critical"}),
        (_ONE, {**_ONE, "text": "pressure very high"}),
        (_ONE, {**_ONE, "value": 7}),
        (_ONE, {**_ONE, "ts": 1.7e9 + 60}),
        (_ONE, {**_ONE, "ts": "soon"}),
        ({**_ONE, "ts": "soon"}, {**_ONE, "ts": "later"}),
        (_ONE, {**_ONE, "tag": "unknown key"}),
        (_ONE, {**_ONE, "source": _LONG + "1"}),
        ({**_ONE, "source": _LONG + "1"}, {**_ONE, "source": _LONG + "2"}),
    ],
)
def test_alarms_that_differ_anywhere_are_both_answered(
    intake: Intake, journal: Journal, first: dict[str, object], second: dict[str, object]
) -> None:
    """Ids are compared whole and by type; a known id with other content was raised again."""
    for alarm in (first, second):
        payload = json.dumps({"text": "pump hot", **alarm}).encode()
        assert intake.take(delivery(payload)) is not None
        assert intake.take(delivery(payload)) is None
    assert len(journal.waiting(9)) == 2


def test_raw_control_characters_tell_ids_apart(intake: Intake, journal: Journal) -> None:
    """They are no valid JSON and are read all the same, without these characters."""
    for name in (b"ab", b"a\x01b", b"a\x7fb", b"a\rb", b"a\nb"):
        intake.take(delivery(b'{"text": "t", "id": "' + name + b'"}'))
    assert len(journal.waiting(9)) == 5


def test_the_same_alarm_is_recognised_in_another_order_and_a_second_later(
    intake: Intake, journal: Journal
) -> None:
    """Two controllers report one event, each with its own clock."""
    intake.take(delivery(json.dumps(_ONE).encode()))
    again = {**dict(reversed(_ONE.items())), "ts": 1.7e9 + 1}
    assert intake.take(delivery(json.dumps(again).encode())) is None
    assert len(journal.waiting(9)) == 1


def test_what_an_earlier_configuration_left_is_answered_by_this_one(journal: Journal, intake: Intake) -> None:
    """New profile and topic by the new routes; without a route the dead-letter topic, never an old topic."""
    intake.take(delivery(b"one"))
    intake.take(delivery(b"two", b"plant/2/alarm"))
    intake.take(delivery(b"", b"plant/3/alarm"))
    journal.finish(journal.waiting(1)[0].seq, b"{}", State.ANSWERED)
    route = Route(topic="plant/1/+", profile="other", answer="new/{1}")
    reroute(journal, RouteTable(Settings(routes=(route,))), "letters")
    assert {(row.topic, row.profile, row.out_topic) for row in journal.waiting(9)} == {
        ("plant/2/alarm", "p", "letters")
    }
    assert {out.topic for out in journal.outgoing(9)} == {"new/alarm", "letters"}


@given(payload=st.binary(max_size=100), topic=st.binary(max_size=20))
def test_any_message_makes_a_dead_letter_of_strict_json(payload: bytes, topic: bytes) -> None:
    """Whatever bytes there are in topic and payload."""
    letter = json.loads(dead_letter(topic, payload, len(payload), "why"))
    assert letter["reason"] == "why"
    assert ("payload" in letter) != ("payload_base64" in letter)


def test_published_json_is_complete_and_strict() -> None:
    """Every figure of the final answer; the error answer has the id; deltas have their place."""
    alarm = Alarm(text="t", source="M1", code="E1", severity=3)
    done = Finished(
        request_id="r",
        reason="stop",
        prompt_tokens=50,
        answer_tokens=9,
        cached_tokens=32,
        passes=4,
        drafted=12,
        accepted=5,
    )
    final = json.loads(final_answer(7, alarm, True, "检查水泵", "m", done, Timing(1.26, 20.0, 99.9)))
    assert {key: final[key] for key in ("id", "severity", "source", "code", "text")} == {
        "id": 7,
        "severity": 3,
        "source": "M1",
        "code": "E1",
        "text": "检查水泵",
    }
    figures = {"prompt_tokens": 50, "cached_tokens": 32, "answer_tokens": 9, "passes": 4, "drafted": 12}
    times = {"queued_ms": 1.3, "ttft_ms": 20.0, "duration_ms": 99.9}
    for key, value in {**figures, **times, "accepted": 5, "model": "m", "finish": "stop"}.items():
        assert final[key] == value
    assert final["cut"] is True
    assert len(final) == 17
    assert json.loads(error_answer("a", None, "x" * 9999)) == {"id": "a", "error": "x" * 500}
    assert json.loads(stream_delta("a", 7, "水")) == {"id": "a", "index": 7, "text": "水"}


def test_dead_letters_are_bounded() -> None:
    """However long the payload is."""
    assert len(dead_letter(b"t", b"\xff" * 10**6, 10**6, "r" * 10**6)) < 3 * DEAD_LETTER_BYTES


@given(st.integers(0, 10_000), st.floats(0, 0.999))
def test_reconnection_is_spread_and_bounded(failures: int, chance: float) -> None:
    """Between a quarter of a second and half a minute, never the same for all."""
    assert 0.25 <= backoff(failures, chance) <= 30.0
    assert backoff(failures, 0.0) < backoff(failures, 0.9)


def test_a_password_comes_from_a_file(tmp_path: Path) -> None:
    """Without its line end; a missing file or certificate is one clear line."""
    file = tmp_path / "password"
    file.write_text("secret\n")
    assert read_password(Mqtt(username="ringline", password_file=file)) == "secret"
    with pytest.raises(RinglineError, match=r"mqtt\.password_file"):
        read_password(Mqtt(username="ringline", password_file=tmp_path / "none"))
    with pytest.raises(RinglineError, match=r"TLS files mqtt\.tls_ca = /"):
        tls_context(Mqtt(tls_ca=tmp_path / "none"))


def test_a_password_that_is_no_text_is_one_clear_line(tmp_path: Path) -> None:
    """Bytes of another encoding."""
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    with pytest.raises(RinglineError, match=r"mqtt\.password_file"):
        read_password(Mqtt(username="ringline", password_file=tmp_path / "password"))


def test_an_alarm_without_an_answer_topic_is_a_dead_letter(tmp_path: Path) -> None:
    """`a//b` with the route a/+/b to {1}: the reason is said, and nothing waits for an answer."""
    route = Route(topic="a/+/b", profile="p", answer="{1}")
    settings = Settings(routes=(route,), gateway=Gateway(dead_letter_topic="dead"))
    journal = Journal(tmp_path / "journal.db", 100)
    Intake(settings, RouteTable(settings), journal).take(delivery(b"pump hot", b"a//b"))
    letter = letters(journal)[0]
    assert letter["topic"] == "a//b"
    assert "it is empty" in str(letter["reason"])
    assert journal.waiting(9) == []
