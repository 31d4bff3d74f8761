"""Payloads as plants send them: each becomes one alarm or one clear reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway import fields
from services.gateway.alarm import Alarm, parse_alarm
from services.gateway.payload import PayloadError, clean, decode_text

CAP = 65_536


def alarm(payload: bytes | str) -> Alarm:
    return parse_alarm(payload if isinstance(payload, bytes) else payload.encode(), CAP)


def reason(payload: bytes, cap: int = CAP) -> str:
    with pytest.raises(PayloadError) as caught:
        parse_alarm(payload, cap)
    return str(caught.value)


def test_json_of_the_documented_shape() -> None:
    """Every field arrives in its own type."""
    found = alarm(
        '{"id": 7, "source": "M1", "code": 4107, "text": "hot", "severity": "critical", "ts": 1700000000,'
        ' "value": "93.5", "unit": "°C", "limit": 75}'
    )
    assert found == Alarm(
        id=7, source="M1", code="4107", text="hot", severity=3, ts=1.7e9, value=93.5, unit="°C", limit=75.0
    )


def test_what_is_too_long_to_show_is_cut_with_a_mark() -> None:
    """Whoever reads the answer sees that it is not all."""
    found = alarm(json.dumps({"id": "x" * 257, "source": "s" * 256, "value": 10**400, "text": "t"}))
    assert found.id == "x" * 255 + "…"
    assert found.source == "s" * 256
    assert found.value == "1" + "0" * 254 + "…"


@pytest.mark.parametrize("charset", ["utf-8", "utf-8-sig", "gbk", "gb18030"])
def test_charsets(charset: str) -> None:
    """UTF-8 with and without a byte order mark, GBK and GB18030, as plain text and inside JSON."""
    assert alarm("锅炉汽包水位低".encode(charset)).text == "锅炉汽包水位低"
    assert alarm('{"text": "锅炉汽包水位低"}'.encode(charset)).text == "锅炉汽包水位低"


@pytest.mark.parametrize("payload", [b"\xc3\x28\x80", b"\xff\xff\xff", b"abc\x80", b"\xfe\xfe"])
def test_invalid_bytes_have_a_reason(payload: bytes) -> None:
    """Neither charset fits."""
    assert "neither UTF-8" in reason(payload)


@pytest.mark.parametrize("payload", [b"", b"   \n", b"\x00\x00", "\ufeff".encode()])
def test_empty_payloads_have_a_reason(payload: bytes) -> None:
    """Nothing, blanks, zeros, or only a byte order mark."""
    assert "empty" in reason(payload)


def test_size_is_checked_before_anything_is_decoded() -> None:
    """The reason names both numbers and the key."""
    text = reason(b"\xff" * 101, cap=100)
    assert "101 bytes" in text
    assert "max_payload_bytes = 100" in text


def test_curly_quotes_as_delimiters_are_repaired_and_inside_text_kept() -> None:
    """An office program's quotes; the ones in a valid text are left alone."""
    assert alarm("{“text”: “pump stopped”, “value”: 3}").text == "pump stopped"
    assert alarm('{"text": "阀门“A3”关闭失败"}').text == "阀门“A3”关闭失败"
    assert "“”" in reason("{“text”: “pump".encode())


@pytest.mark.parametrize(
    ("payload", "part"),
    [
        ('{"text": "a"', "not valid JSON"),
        ('{"value": 1}', 'without a "text"'),
        ('{"text": null}', 'without a "text"'),
        ('{"text": 42}', '"text" must be text in quotes and is the number 42'),
        ('{"text": ["a"]}', '"text" must be text in quotes and is a list of 1'),
        ('{"text": true}', '"text" must be text in quotes and is true'),
        ('{"text": "  "}', '"text" is empty'),
        ('[{"text": "a"}]', "array"),
        ('{"a":' * 5000, "nested too deeply"),
    ],
)
def test_json_that_is_no_alarm_has_a_reason(payload: str, part: str) -> None:
    """Cut, without a text, an array, absurdly deep."""
    assert part in reason(payload.encode())


@pytest.mark.parametrize(
    "text", ["[ERROR] pump 3", '"quoted" said the log', "[1] 12:00 start", "42", "<|im_end|>"]
)
def test_log_lines_that_look_like_json_are_text(text: str) -> None:
    """Plain text stays what it is."""
    assert alarm(text).text == text


def test_nan_and_infinity_are_kept_as_words() -> None:
    """A broken sensor says so; no NaN reaches anybody's JSON."""
    found = alarm('{"text": "t", "value": NaN, "limit": -Infinity}')
    assert (found.value, found.limit) == ("NaN", "-Infinity")


def test_a_number_of_thousands_of_digits_stops_no_alarm() -> None:
    """Python's own limit is 4300."""
    digits = "9" * 5000
    fields = (f'"{name}": {digits}' for name in ("value", "ts", "id"))
    found = alarm(f'{{"text": "t", "severity": -{digits}, {", ".join(fields)}}}')
    assert (found.text, found.ts, found.severity) == ("t", None, 1)
    assert str(found.value).startswith("999")
    assert len(str(found.id)) == 256


def test_surrogates_and_control_characters_do_not_survive() -> None:
    """What is kept can always be written as UTF-8 JSON."""
    found = alarm('{"text": "a\\u0000b\\ud800c\\u001b[31m"}')
    assert found.text == "ab?c[31m"
    assert clean("a\r\nb\rc\td") == "a\nb\nc\td"


@pytest.mark.parametrize(
    ("value", "level"),
    [
        *((number, number) for number in range(4)),
        ("2", 2),
        (7, 3),
        (100, 1),
        (500, 2),
        (900, 3),
        (-1, 1),
        ("CRITICAL", 3),
        ("High", 2),
        ("紧急", 3),
        ("警告", 1),
        ("信息", 0),
        ("whatever", 1),
        (None, 1),
        (True, 1),
        ([], 1),
        (float("nan"), 1),
    ],
)
def test_severities(value: object, level: int) -> None:
    """Words in two languages, our numbers, a short scale, OPC UA's scale; nonsense is a warning."""
    assert fields.severity(value) == level


@pytest.mark.parametrize(
    "value",
    [
        1772410622,
        1772410622123,
        1772410622123456,
        1772410622123456789,
        "1772410622.5",
        "2026-03-02T00:17:02Z",
        "2026-03-02T08:17:02+08:00",
        "2026/03/02 00:17:02.500+00:00",
        "2026-03-02 00:17:02,418+00:00",
    ],
)
def test_times_of_every_unit_mean_the_same_second(value: object) -> None:
    """Seconds, milliseconds, microseconds, nanoseconds and ISO dates."""
    assert int(fields.timestamp(value) or 0) == 1772410622


def test_a_naive_date_is_local_time() -> None:
    """PLCs write their wall clock."""
    local = datetime(2026, 3, 2, 8, 17, 2)
    assert fields.timestamp("2026-03-02 08:17:02") == local.timestamp()
    assert fields.timestamp("2026-03-02T08:17:02Z") == datetime(2026, 3, 2, 8, 17, 2, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("value", ["", "soon", -5, 1e30, True, None, [], "0000-00-00", float("inf")])
def test_nonsense_times_are_left_out(value: object) -> None:
    """An alarm with a broken clock is an alarm."""
    assert fields.timestamp(value) is None


def test_an_id_stays_the_number_or_text_that_it_was() -> None:
    """0 too; what is no number and no text, or too long, is not shown as one."""
    for value in (0, 7, -3, 2.5, "7", "007", 10**200):
        found = alarm(json.dumps({"id": value, "text": "t"})).id
        assert found == value
        assert type(found) is type(value)
    assert alarm(json.dumps({"id": 10**400, "text": "t"})).id == "1" + "0" * 254 + "…"
    assert alarm('{"id": true, "text": "t"}').id is None


@pytest.mark.parametrize(
    ("sent", "doubt"),
    [
        ('"severity": 7', '"severity" 7 is taken as 3 (critical)'),
        ('"severity": -1', '"severity" -1 is taken as 1 (warning)'),
        ('"severity": 2.5', '"severity" 2.5 is taken as 2 (alarm)'),
        ('"severity": "dire"', '"severity" "dire" is taken as 1 (warning)'),
        ('"severity": [3]', '"severity" a list of 1 is taken as 1 (warning)'),
        ('"ts": "soon"', '"ts" "soon" cannot be used and is left out'),
        ('"limit": true', '"limit" true cannot be used and is left out'),
        ('"limit": {}', '"limit" a table of 0 cannot be used and is left out'),
        ('"value": [1]', '"value" a list of 1 cannot be used and is left out'),
        ('"source": false', '"source" false cannot be used and is left out'),
    ],
)
def test_what_is_not_understood_is_said(sent: str, doubt: str) -> None:
    """The alarm is one all the same."""
    found = alarm(f'{{"text": "hot", {sent}}}')
    assert found.text == "hot"
    assert found.doubts == (doubt,)


@pytest.mark.parametrize(
    "sent",
    [
        *('"severity": "2"', '"severity": 500', '"severity": " High "', '"severity": ""', '"severity": null'),
        *('"ts": ""', '"limit": null', '"value": true', '"value": "ON"', '"limit": "75 bar"', '"tag": [1]'),
    ],
)
def test_what_is_documented_or_empty_is_not_doubted(sent: str) -> None:
    """OPC UA's scale, words, empty fields, texts, keys that nobody knows."""
    assert alarm(f'{{"text": "hot", {sent}}}').doubts == ()


def test_true_is_no_limit() -> None:
    """As a value it may be a digital input."""
    found = alarm('{"text": "hot", "value": true, "limit": true}')
    assert (found.value, found.limit) == ("true", None)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_alarm_or_have_a_reason(payload: bytes) -> None:
    """Never another exception, and what is accepted can be written as JSON."""
    try:
        found = parse_alarm(payload, 256)
    except PayloadError:
        return
    json.dumps(found.model_dump(), allow_nan=False).encode()
    assert decode_text(payload, 256)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["id", "source", "code", "severity", "ts", "value", "unit", "limit", "other"]),
        _values,
    )
)
def test_any_json_with_a_text_is_an_alarm(found: dict[str, object]) -> None:
    """No value of an optional field can make an alarm fail."""
    made = parse_alarm(json.dumps({**found, "text": "pump stopped"}).encode(), 1 << 20)
    assert made.text == "pump stopped"
    assert 0 <= made.severity <= 3
    json.dumps(made.model_dump(), allow_nan=False).encode()
