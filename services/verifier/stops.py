"""Stop strings: an answer ends with the token whose bytes complete one, wherever the tokens' borders are.

    tokens   … "the" │ " end" │ ".\\n##" │ "# "          stop string "###": complete with the last token here
    tail              the last bytes of the answer, one less than the longest stop string

Only the answer is looked at, never the prompt. Who publishes the text cuts it in front of the stop string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TokenBytes(Protocol):
    def __call__(self, token: int, /) -> bytes:
        """The bytes that a token stands for; none for a control token."""


def no_bytes(_token: int) -> bytes:
    """Of a vocabulary that nobody asks about."""
    return b""


class StopStrings:
    """The stop strings of one sequence, and its answer as far as it is known.

    Tokens are turned into bytes when a pass is judged, not before: most sequences have no stop strings, and
    their tokens' bytes are never asked for.
    """

    __slots__ = ("_longest", "_strings", "_tail", "_unread")

    def __init__(self, strings: Sequence[str], answer: Sequence[int]) -> None:
        self._strings = [string.encode() for string in strings]
        self._longest = max(map(len, self._strings), default=0)
        self._unread = list(answer) if self._strings else []
        self._tail = b""

    def take(self, tokens: Sequence[int]) -> None:
        """Answer tokens that are known now."""
        if self._strings:
            self._unread += tokens

    def ends(self, stop: frozenset[int], token_bytes: TokenBytes) -> Ends:
        if self._unread:
            text = self._tail + b"".join(map(token_bytes, self._unread))
            self._tail, self._unread = self.cut(text), []
        return Ends(self, stop, self._tail, token_bytes)

    def cut(self, text: bytes) -> bytes:
        """The end of a text in which a stop string may begin that is not complete."""
        return text[max(0, len(text) - self._longest + 1) :]

    def __bool__(self) -> bool:
        return bool(self._strings)

    def found(self, text: bytes) -> bool:
        return any(string in text for string in self._strings)


class Ends:
    """The ends of one walk (services.verifier.acceptance.Ends)."""

    __slots__ = ("_stop", "_strings", "_tail", "_token_bytes")

    def __init__(
        self, strings: StopStrings, stop: frozenset[int], tail: bytes, token_bytes: TokenBytes
    ) -> None:
        self._strings = strings
        self._stop = stop
        self._tail = tail
        self._token_bytes = token_bytes

    def is_stop(self, token: int) -> bool:
        return token in self._stop

    def completes(self, token: int) -> bool:
        if not self._strings:
            return False
        text = self._tail + self._token_bytes(token)
        self._tail = self._strings.cut(text)
        return self._strings.found(text)
