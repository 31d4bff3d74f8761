"""Severity, time and number of an alarm: many spellings in, one meaning out; what has none is named. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.config.quote import shown

DEFAULT_SEVERITY = 1

_SEVERITIES = (
    "info information notice debug trace event message normal ok 信息 提示 通知 正常 事件",
    "warning warn low minor advisory 警告 预警 低 轻微 一般 次要",
    "alarm error err medium high major 报警 告警 错误 中 高 重要 严重 较重",
    "critical crit fatal emergency emerg alert urgent highhigh high-high hihi 致命 紧急 危急 特急 高高 灾难",
)
_NAMES = ("info", "warning", "alarm", "critical")
_BY_WORD = {word: level for level, words in enumerate(_SEVERITIES) for word in words.split()}

# Below the first limit a number is seconds (1e11 s: the year 5138), then milliseconds (1e11 ms: 1973) ...
_EPOCH_UNITS = ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (1e20, 1e9))
_EARLIEST, _LATEST = 0.0, 4102444800.0  # 1970 to 2100


def severity(value: Any) -> int:
    """0 info, 1 warning, 2 alarm, 3 critical; 1 when it cannot be told.

    Numbers 0-3 are ours; 4-9 are the top of a short scale; 10-1000 is OPC UA's scale in thirds.
    """
    number_ = number(value)
    if number_ is not None:
        return _severity_of_number(number_)
    if isinstance(value, str):
        return _BY_WORD.get(_word(value), DEFAULT_SEVERITY)
    return DEFAULT_SEVERITY


def _word(value: str) -> str:
    return value.strip().lower().replace(" ", "")


def _severity_of_number(value: float) -> int:
    if value < 0:
        return DEFAULT_SEVERITY
    if value < 10:
        return min(3, int(value))
    return 1 if value < 334 else 2 if value < 667 else 3


def doubts(found: Mapping[str, Any], used: Mapping[str, Any]) -> tuple[str, ...]:
    """One line for each field of `found` (as it came) whose meaning was guessed, or that is not in `used`.

    Empty fields are not doubtful: many systems send all of them always.
    """
    lines = []
    if not _blank(level := found.get("severity")) and not _clear_severity(level):
        taken = used["severity"]
        lines.append(f'"severity" {_as_sent(level)} is taken as {taken} ({_NAMES[taken]})')
    for name, value in used.items():
        if value is None and not _blank(found.get(name)):
            lines.append(f'"{name}" {_as_sent(found[name])} cannot be used and is left out')
    return tuple(lines)


def _clear_severity(value: Any) -> bool:
    """Whether it says what it means: 0-3, a known word, or OPC UA's 10-1000."""
    number_ = number(value)
    if number_ is None:
        return isinstance(value, str) and _word(value) in _BY_WORD
    return number_ in (0, 1, 2, 3) or 10 <= number_ <= 1000


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _as_sent(value: Any) -> str:
    """As JSON would show it."""
    return str(value).lower() if isinstance(value, bool) else shown(value)


def number(value: Any) -> float | None:
    """A finite number, also one that came as a string; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value.strip() if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def timestamp(value: Any) -> float | None:
    """Seconds since 1970 (UTC) from an epoch in s, ms, µs or ns, or an ISO date; None when it is neither.

    A date without a zone is the gateway's local time, because PLCs write their wall clock.
    """
    seconds = _from_epoch(number(value))
    if seconds is None and isinstance(value, str):
        seconds = _from_date(value)
    return seconds if seconds is not None and _EARLIEST < seconds < _LATEST else None


def _from_epoch(value: float | None) -> float | None:
    if value is None:
        return None
    for limit, divisor in _EPOCH_UNITS:
        if abs(value) < limit:
            return value / divisor
    return None


def _from_date(value: str) -> float | None:
    text = value.strip().replace("/", "-").replace(",", ".")
    try:
        return datetime.fromisoformat(text).timestamp()  # a naive date is taken as local time
    except (ValueError, OverflowError, OSError):
        return None
