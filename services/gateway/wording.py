"""An alarm in words: as the user's message of a prompt, and as a line of its asset's log. Pure."""

from __future__ import annotations

from datetime import datetime

from services.gateway.alarm import CUT, Alarm
from shared.config.settings import Language

_LABELS: dict[Language, dict[str, str]] = {
    "en": {
        "source": "Source",
        "code": "Code",
        "severity": "Severity",
        "time": "Time",
        "value": "Value",
        "limit": "limit",
        "alarm": "Alarm",
        "alarm text": "Alarm",
        "text": "Text",
        "colon": ": ",
        "comma": ", ",
        "cut": " …[cut]… ",
    },
    "zh": {
        "source": "来源",
        "code": "代码",
        "severity": "级别",
        "time": "时间",
        "value": "数值",
        "limit": "限值",
        "alarm": "报警",
        "alarm text": "报警内容",
        "text": "内容",
        "colon": "：",
        "comma": "，",
        "cut": " …（已截断）… ",
    },
}
_SEVERITIES: dict[Language, tuple[str, str, str, str]] = {
    "en": ("info", "warning", "alarm", "critical"),
    "zh": ("信息", "警告", "报警", "紧急"),
}
LEAST_TEXT = 24  # characters of the text that come before any other field, and before room for the answer
_TEXT_SHARE = 4  # beyond that the text may be so many times longer than another field
_FULL_TIME, _SHORT_TIME = "%Y-%m-%d %H:%M:%S", "%m-%d %H:%M:%S"


def user_text(alarm: Alarm, language: Language, keep: int | None = None, on_stream: bool = False) -> str:
    """The user's message. When there is a `keep`, at most that many characters of the alarm's text and about
    a quarter as many of each other field; cuts are marked, what would be nothing but a mark is left out.

    `on_stream`: log lines may stand in front of it, so a line of its own says where the alarm begins.
    """
    words = _LABELS[language]
    short = None if keep is None else max(0, keep - LEAST_TEXT) // _TEXT_SHARE
    lines = [
        (words["source"], _cut_word(alarm.source, short)),
        (words["code"], _cut_word(alarm.code, short)),
        (words["severity"], _SEVERITIES[language][alarm.severity]),
        (words["time"], _whole(_time(alarm.ts, _FULL_TIME), short)),
        (words["value"], _measurement(alarm, language, short)),
        (words["text" if on_stream else "alarm text"], cut_middle(alarm.text, keep, words["cut"])),
    ]
    heading = [f"{words['alarm']}{words['colon']}".rstrip()] if on_stream else []
    return "\n".join([*heading, *(f"{label}{words['colon']}{value}" for label, value in lines if value)])


def whole_from(alarm: Alarm) -> int:
    """The smallest `keep` with which `user_text` leaves nothing out."""
    values = [
        alarm.source,
        alarm.code,
        _time(alarm.ts, _FULL_TIME),
        alarm.unit,
        _number(alarm.value),
        _number(alarm.limit),
    ]
    return max(len(alarm.text), LEAST_TEXT + _TEXT_SHARE * max(len(value or "") for value in values))


def line_text(alarm: Alarm, language: Language, most: int) -> str:
    """A log line of an asset: time, source, code, text and measurement in one line of `most` characters.

    The year and the severity are left out: a stream lives in a window of some thousand tokens.
    """
    words = _LABELS[language]
    about = " ".join(word for word in (_time(alarm.ts, _SHORT_TIME), alarm.source, alarm.code) if word)
    said = words["comma"].join(word for word in (alarm.text, _measurement(alarm, language, None)) if word)
    line = " ".join(f"{about}{words['colon']}{said}".split()) if about else " ".join(said.split())
    return cut_middle(line, most, words["cut"]) + "\n"


def cut_mark(language: Language) -> str:
    """What stands where something was left out."""
    return _LABELS[language]["cut"]


def cut_middle(text: str, keep: int | None, mark: str) -> str:
    """`text`, or its first two thirds and last third of `keep` characters: logs end with what went wrong."""
    if keep is None or len(text) <= keep:
        return text
    tail = keep // 3
    return text[: keep - tail] + mark + text[len(text) - tail :]


def _cut_word(word: str | None, keep: int | None) -> str | None:
    """In one line: a line break in a field must not look like the next field."""
    return cut_middle(" ".join(word.split()), keep, CUT) if word and keep != 0 else None


def _whole(word: str | None, keep: int | None) -> str | None:
    """Part of a time or of a number is wrong."""
    return word if word and (keep is None or len(word) <= keep) else None


def _time(ts: float | None, form: str) -> str | None:
    return None if ts is None else datetime.fromtimestamp(ts).strftime(form)


def _measurement(alarm: Alarm, language: Language, keep: int | None) -> str | None:
    words = _LABELS[language]
    cut_unit = _cut_word(alarm.unit, keep)
    unit = f" {cut_unit}" if cut_unit else ""
    value, limit = _reading(alarm.value, keep), _reading(alarm.limit, keep)
    parts = [f"{value}{unit}"] if value else []
    if limit:
        parts.append(f"{words['limit']} {limit}{unit}")
    return words["comma"].join(parts) or None


def _reading(value: float | str | None, keep: int | None) -> str | None:
    shown = _number(value)
    return _cut_word(shown, keep) if isinstance(value, str) else _whole(shown, keep)


def _number(value: float | str | None) -> str | None:
    return value if value is None or isinstance(value, str) else f"{value:.10g}"
