"""An alarm in words: as the user's message of a prompt, and as a line of its asset's log. Pure."""

from __future__ import annotations

from datetime import datetime

from services.gateway.alarm import Alarm
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


def user_text(alarm: Alarm, language: Language, keep: int | None = None, on_stream: bool = False) -> str:
    """The user's message; of the alarm's text at most `keep` characters, the cut marked in the middle.

    `on_stream`: log lines may stand in front of it, so a line of its own says where the alarm begins.
    """
    words = _LABELS[language]
    lines = [
        (words["source"], alarm.source),
        (words["code"], alarm.code),
        (words["severity"], _SEVERITIES[language][alarm.severity]),
        (words["time"], _time(alarm.ts, "%Y-%m-%d %H:%M:%S")),
        (words["value"], _measurement(alarm, language)),
        (words["text" if on_stream else "alarm text"], cut_middle(alarm.text, keep, words["cut"])),
    ]
    heading = [f"{words['alarm']}{words['colon']}".rstrip()] if on_stream else []
    return "\n".join([*heading, *(f"{label}{words['colon']}{value}" for label, value in lines if value)])


def line_text(alarm: Alarm, language: Language, most: int) -> str:
    """A log line of an asset: time, source, code, text and measurement in one line of `most` characters.

    The year and the severity are left out: a stream lives in a window of some thousand tokens.
    """
    words = _LABELS[language]
    about = " ".join(word for word in (_time(alarm.ts, "%m-%d %H:%M:%S"), alarm.source, alarm.code) if word)
    said = words["comma"].join(word for word in (alarm.text, _measurement(alarm, language)) if word)
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


def _time(ts: float | None, form: str) -> str | None:
    return None if ts is None else datetime.fromtimestamp(ts).strftime(form)


def _measurement(alarm: Alarm, language: Language) -> str | None:
    words = _LABELS[language]
    unit = f" {alarm.unit}" if alarm.unit else ""
    parts = [] if alarm.value is None else [f"{_number(alarm.value)}{unit}"]
    if alarm.limit is not None:
        parts.append(f"{words['limit']} {_number(alarm.limit)}{unit}")
    return words["comma"].join(parts) or None


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"
