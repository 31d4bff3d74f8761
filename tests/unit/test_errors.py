"""What a user sees is one line of bounded length, whatever was put into it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.errors import MAX_MESSAGE, RinglineError
from shared.config.quote import quoted, shown


@given(st.text())
def test_an_error_is_one_printable_line(text: str) -> None:
    assert str(RinglineError(f"cannot use {text}")).isprintable()


def test_an_error_has_a_bounded_length() -> None:
    assert len(str(RinglineError("x" * 10_000_000))) == MAX_MESSAGE


def test_messages_in_chinese_stay_as_they_are() -> None:
    assert str(RinglineError("锅炉：压力过高")) == "锅炉：压力过高"


def deep(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "value",
    [deep(100_000), [[[]]] * 9, 1 << 100_000, "\n" * 100, 1e300, True],
    ids=lambda v: type(v).__name__,
)
def test_any_value_is_shown_on_a_short_line(value: object) -> None:
    """Also a table that is nested more deeply than repr() can go, and a number that str() refuses."""
    assert len(shown(value)) <= 70
    assert shown(value).isprintable()


def test_quoted_text_may_be_longer_where_it_says_so() -> None:
    assert quoted("x" * 100, 200) == '"' + "x" * 100 + '"'
