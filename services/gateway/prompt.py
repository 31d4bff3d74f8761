"""Alarms as prompts whose tokens fit sink + window, log lines as tokens that fit a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.gateway.alarm import Alarm
from services.gateway.wording import LEAST_TEXT, cut_mark, cut_middle, user_text, whole_from
from shared.config.settings import Profile
from shared.model.chat import ChatPrompt, render_chat
from shared.model.open import ModelFile
from shared.model.tokenizer import StreamDecoder

CHARS_PER_TOKEN = 32  # more text than this never fits, so it is not even tokenised
_LINE_TOKENS = 128


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

    def prompt(self, profile: Profile, alarm: Alarm, on_stream: bool = False) -> Prompt:
        """The whole prompt. Of fields that are too long the middle is left out until the rest fits.

        On a stream it may take half of the room: the other half is for what the asset has logged.
        """

        def tokens(keep: int) -> list[int]:
            return self._render(profile, user_text(alarm, profile.language, keep, on_stream)).tokens

        sink, room = len(self.prefix(profile)), prompt_room(profile)
        # A question with a part of the log's and the answer's room rather than no question.
        rooms = [*([room // 2] if on_stream else []), room, profile.window]
        least = len(tokens(LEAST_TEXT))
        room = sink + next((room for room in rooms if least <= sink + room), profile.window)
        whole = whole_from(alarm)
        keep, found = longest(tokens, min(whole, room * CHARS_PER_TOKEN), room)
        return Prompt(found, cut=keep < whole)

    def line(self, profile: Profile, text: str) -> tuple[list[int], bool]:
        """A log line as tokens of plain text, at most `line_room(profile)`, and whether that cut it."""
        room = line_room(profile)
        mark = cut_mark(profile.language)
        body = text.rstrip("\n")

        def tokens(keep: int) -> list[int]:
            return self._tokenizer.encode(cut_middle(body, keep, mark) + "\n")

        keep, found = longest(tokens, len(body), room)
        return found[:room], keep < len(body)

    def _render(self, profile: Profile, user: str) -> ChatPrompt:
        return render_chat(self._info, self._tokenizer, profile.system, user)


def prompt_room(profile: Profile) -> int:
    """Tokens behind the sink that a prompt may have: what is left of the window once the answer is in it.

    At least half the window: a long answer may outlive its question, a question without room is none.
    """
    return max(profile.window - profile.max_tokens, profile.window // 2)


def line_room(profile: Profile) -> int:
    """Tokens of a log line at most: in the smallest window there is room for a few lines."""
    return min(_LINE_TOKENS, profile.window // 4)


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
