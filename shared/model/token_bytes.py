"""What each token stands for, in little memory: for a process that needs no tokenizer otherwise."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from shared.model.tokenizer import Tokenizer


class TokenBytes:
    """One string of bytes with all tokens of a vocabulary behind one another (about 2 MB for 150k tokens).

    It is made when it is first asked; `tokenizer` is called then.
    """

    def __init__(self, tokenizer: Callable[[], Tokenizer]) -> None:
        self._tokenizer = tokenizer
        self._bytes = b""
        self._ends = array("I")

    def __call__(self, token: int, /) -> bytes:
        """The bytes of a token, none for a control token. IndexError for an id behind the vocabulary."""
        if not self._ends:
            self.make()
        return self._bytes[self._ends[token] : self._ends[token + 1]]

    def make(self) -> None:
        """Do it now: it takes a second, which is better spent at the start than in the first answer."""
        tokenizer = self._tokenizer()
        parts = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
        ends = array("I", [0])
        for part in parts:
            ends.append(ends[-1] + len(part))
        self._bytes, self._ends = b"".join(parts), ends
