"""An alarm as the user's message of a prompt, and the prompt as tokens that fit sink + window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from services.gateway.alarm import CUT, Alarm
from shared.config.settings import Language, Profile
from shared.model.chat import ChatPrompt, render_chat
from shared.model.open import ModelFile
from shared.model.tokenizer import StreamDecoder

_LABELS: dict[Language, dict[str, str]] = {
    "en": {
        "source": "Source",
        "code": "Code",
        "severity": "Severity",
        "time": "Time",
        "value": "Value",
        "limit": "limit",
        "text": "Alarm",
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
        "text": "报警内容",
        "colon": "：",
        "comma": "，",
        "cut": " …（已截断）… ",
    },
}
_SEVERITIES: dict[Language, tuple[str, str, str, str]] = {
    "en": ("info", "warning", "alarm", "critical"),
    "zh": ("信息", "警告", "报警", "紧急"),
}
_CHARS_PER_TOKEN = 32  # more text than this never fits, so it is not even tokenised
_LEAST_TEXT = 24  # characters of the text that come before any other field, and before room for the answer
_TEXT_SHARE = 4  # beyond that the text may be so many times longer than another field


def user_text(alarm: Alarm, language: Language, keep: int | None = None) -> str:
    """The user's message. When there is a `keep`, at most that many characters of the alarm's text and about
    a quarter as many of each other field; cuts are marked, what would be nothing but a mark is left out.
    """
    words = _LABELS[language]
    short = None if keep is None else max(0, keep - _LEAST_TEXT) // _TEXT_SHARE
    lines = [
        (words["source"], _cut_word(alarm.source, short)),
        (words["code"], _cut_word(alarm.code, short)),
        (words["severity"], _SEVERITIES[language][alarm.severity]),
        (words["time"], _whole(_time(alarm.ts), short)),
        (words["value"], _measurement(alarm, language, short)),
        (words["text"], cut_middle(alarm.text, keep, words["cut"])),
    ]
    return "\n".join(f"{label}{words['colon']}{value}" for label, value in lines if value)


def whole_from(alarm: Alarm) -> int:
    """The smallest `keep` with which `user_text` leaves nothing out."""
    values = [
        alarm.source,
        alarm.code,
        _time(alarm.ts),
        alarm.unit,
        _number(alarm.value),
        _number(alarm.limit),
    ]
    return max(len(alarm.text), _LEAST_TEXT + _TEXT_SHARE * max(len(value or "") for value in values))


def _cut_word(word: str | None, keep: int | None) -> str | None:
    return cut_middle(word, keep, CUT) if word and keep != 0 else None


def _whole(word: str | None, keep: int | None) -> str | None:
    """Part of a time or of a number is wrong."""
    return word if word and (keep is None or len(word) <= keep) else None


def cut_middle(text: str, keep: int | None, mark: str) -> str:
    """`text`, or its first two thirds and last third of `keep` characters: logs end with what went wrong."""
    if keep is None or len(text) <= keep:
        return text
    tail = keep // 3
    return text[: keep - tail] + mark + text[len(text) - tail :]


def _time(ts: float | None) -> str | None:
    return None if ts is None else datetime.fromtimestamp(ts).strftime("%Y-%m-%d %H:%M:%S")


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


@dataclass(frozen=True, slots=True)
class Prompt:
    """`cut`: not all of the alarm is in it."""

    tokens: list[int]
    cut: bool


class Prompter:
    """The only place with the tokenizer: prompts in, text out."""

    def __init__(self, model: ModelFile) -> None:
        self._info = model.info
        self._tokenizer = model.tokenizer()
        self._prefixes: dict[str, list[int]] = {}

    @property
    def model(self) -> str:
        return self._info.name

    @property
    def stop_tokens(self) -> list[int]:
        return list(self._info.stop_tokens)

    def decoder(self) -> StreamDecoder:
        return StreamDecoder(self._tokenizer)

    def prefix(self, profile: Profile) -> list[int]:
        """Tokens that begin every prompt of the profile: its sink."""
        if profile.name not in self._prefixes:
            self._prefixes[profile.name] = self._render(profile, "").prefix
        return self._prefixes[profile.name]

    def prompt(self, profile: Profile, alarm: Alarm) -> Prompt:
        """The whole prompt. Of fields that are too long the middle is left out until the rest fits."""

        def tokens(keep: int) -> list[int]:
            return self._render(profile, user_text(alarm, profile.language, keep)).tokens

        sink, room = len(self.prefix(profile)), prompt_room(profile)
        if room < profile.window and len(tokens(_LEAST_TEXT)) > sink + room:
            room = profile.window  # a question with a part of its answer's room rather than no question
        room += sink
        whole = whole_from(alarm)
        keep, found = longest(tokens, min(whole, room * _CHARS_PER_TOKEN), room)
        return Prompt(found, cut=keep < whole)

    def _render(self, profile: Profile, user: str) -> ChatPrompt:
        return render_chat(self._info, self._tokenizer, profile.system, user)


def prompt_room(profile: Profile) -> int:
    """Tokens behind the sink that a prompt may have: what is left of the window once the answer is in it.

    At least half the window: a long answer may outlive its question, a question without room is none.
    """
    return max(profile.window - profile.max_tokens, profile.window // 2)


def longest(tokens: Callable[[int], list[int]], upper: int, room: int) -> tuple[int, list[int]]:
    """The largest keep ≤ upper for which `tokens(keep)` has at most `room` (bisection), else 0; and those."""
    found = tokens(upper)
    if len(found) <= room:
        return upper, found
    low, high, found = 0, upper, tokens(0)
    while high - low > 1:
        middle = (low + high) // 2
        candidate = tokens(middle)
        if len(candidate) <= room:
            low, found = middle, candidate
        else:
            high = middle
    return low, found
