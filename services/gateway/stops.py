"""Text of an answer up to its first stop string, which is the one that is complete first. Pure.

    known     "Check the pump.\n#"        "Check the pump.\n##"       "Check the pump.\n### N"
    certain   "Check the pump.\n"         "Check the pump.\n"         "Check the pump.\n", and nothing more

What may become a stop string is held back, so what was published never has to be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared.model.tokenizer import StreamDecoder


class StopText:
    """Takes an answer piece by piece. Without stop strings every piece passes as it is."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self._ended = False

    def push(self, text: str) -> str:
        """What is certain now; nothing behind the first stop string ever is."""
        if self._ended:
            return ""
        text = self._held + text
        # Complete first, not begun first: a longer one around it may not have arrived yet.
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held, self._ended = "", True
            return text[: min(found)[1]]
        keep = max((_begun(text, stop) for stop in self._stops), default=0)
        certain = len(text) - keep
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """What was held back: the answer ends, so it is text."""
        rest, self._held = self._held, ""
        return rest


class AnswerDecoder:
    """Tokens of one answer as text, up to its first stop string."""

    def __init__(self, decoder: StreamDecoder, stops: Sequence[str]) -> None:
        self._decoder = decoder
        self._text = StopText(stops)

    def push(self, tokens: Sequence[int]) -> str:
        """The text that is certain now. ValueError for a wrong id."""
        return self._text.push(self._decoder.push(tokens))

    def finish(self, complete: bool) -> str:
        """The rest. An answer that is not complete may end inside a character: that is no text."""
        rest = self._decoder.finish() if complete else ""
        return self._text.push(rest) + self._text.finish()


def _begun(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
