"""An alarm as the user's message of a prompt, and the prompt as tokens that fit sink + window."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from services.gateway.alarm import Alarm
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
_CHARS_PER_TOKEN = 8  # more text than this never fits, so it is not even tokenised


def user_text(alarm: Alarm, language: Language, keep: int | None = None) -> str:
    """The user's message; of the alarm's text at most `keep` characters, the cut marked in the middle."""
    words = _LABELS[language]
    lines = [
        (words["source"], alarm.source),
        (words["code"], alarm.code),
        (words["severity"], _SEVERITIES[language][alarm.severity]),
        (words["time"], _time(alarm.ts)),
        (words["value"], _measurement(alarm, language)),
        (words["text"], cut_middle(alarm.text, keep, words["cut"])),
    ]
    return "\n".join(f"{label}{words['colon']}{value}" for label, value in lines if value)


def cut_middle(text: str, keep: int | None, mark: str) -> str:
    """`text`, or its first two thirds and last third of `keep` characters: logs end with what went wrong."""
    if keep is None or len(text) <= keep:
        return text
    tail = keep // 3
    return text[: keep - tail] + mark + text[len(text) - tail :]


def _time(ts: float | None) -> str | None:
    return None if ts is None else datetime.fromtimestamp(ts).strftime("%Y-%m-%d %H:%M:%S")


def _measurement(alarm: Alarm, language: Language) -> str | None:
    words = _LABELS[language]
    unit = f" {alarm.unit}" if alarm.unit else ""
    parts = [] if alarm.value is None else [f"{_number(alarm.value)}{unit}"]
    if alarm.limit is not None:
        parts.append(f"{words['limit']} {_number(alarm.limit)}{unit}")
    return words["comma"].join(parts) or None


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"


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

    def prompt(self, profile: Profile, alarm: Alarm) -> list[int]:
        """The whole prompt. Of a text that is too long the middle is left out until the rest fits."""
        room = len(self.prefix(profile)) + prompt_room(profile)

        def tokens(keep: int) -> list[int]:
            return self._render(profile, user_text(alarm, profile.language, keep)).tokens

        return longest(tokens, min(len(alarm.text), room * _CHARS_PER_TOKEN), room)

    def _render(self, profile: Profile, user: str) -> ChatPrompt:
        return render_chat(self._info, self._tokenizer, profile.system, user)


def prompt_room(profile: Profile) -> int:
    """Tokens behind the sink that a prompt may have: what is left of the window once the answer is in it.

    At least half the window: a long answer may outlive its question, a question without room is none.
    """
    return max(profile.window - profile.max_tokens, profile.window // 2)


def longest(tokens: Callable[[int], list[int]], upper: int, room: int) -> list[int]:
    """`tokens(keep)` for the largest keep ≤ upper with at most `room` tokens (bisection), else for 0."""
    found = tokens(upper)
    if len(found) <= room:
        return found
    low, high, found = 0, upper, tokens(0)
    while high - low > 1:
        middle = (low + high) // 2
        candidate = tokens(middle)
        if len(candidate) <= room:
            low, found = middle, candidate
        else:
            high = middle
    return found
