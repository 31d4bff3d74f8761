"""Log lines are short and few, whatever is logged and however often."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog
from structlog.testing import capture_logs

from shared.config.logging import MAX_TEXT, configure_logging
from shared.config.settings import Log
from shared.config.sparse_log import INTERVAL_S, SparseWarning


@pytest.fixture(autouse=True)
def _logging_ends_with_the_test() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def logged(capsys: pytest.CaptureFixture[str], format_: Literal["json", "console"] = "json") -> str:
    """What logging a hostile text writes."""
    configure_logging(Log(format=format_), "test")
    structlog.get_logger().warning("heard", text="a\n\x1b[2J" + "x" * 1_000_000)
    return capsys.readouterr().err


@pytest.mark.parametrize("format_", ["json", "console"])
def test_a_foreign_text_is_cut_and_stays_on_its_line(
    capsys: pytest.CaptureFixture[str], format_: Literal["json", "console"]
) -> None:
    line = logged(capsys, format_)
    assert line.count("\n") == 1
    assert len(line) < MAX_TEXT + 300
    assert "\x1b[2J" not in line


def test_texts_of_libraries_are_cut_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Log(), "test")
    logging.getLogger("paho").warning("b" * 100_000)
    assert len(capsys.readouterr().err) < MAX_TEXT + 300


def test_a_traceback_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """It is ours, and its end is what matters."""
    configure_logging(Log(), "test")
    try:
        raise ValueError("y" * MAX_TEXT)
    except ValueError:
        structlog.get_logger().exception("fault")
    assert "y" * MAX_TEXT in json.loads(capsys.readouterr().err)["exception"]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_warning_is_written_at_once_then_rarely_and_with_a_count() -> None:
    clock = Clock()
    warn = SparseWarning("frame dropped", clock)
    with capture_logs() as lines:
        for number in range(1000):
            warn(number=number)
        clock.now += INTERVAL_S
        warn(number=1000)
        clock.now += INTERVAL_S
        warn(number=1001)
    expected: list[dict[str, Any]] = [{"number": 0}, {"number": 1000, "unsaid": 999}, {"number": 1001}]
    common = {"event": "frame dropped", "log_level": "warning"}
    assert lines == [common | fields for fields in expected]
