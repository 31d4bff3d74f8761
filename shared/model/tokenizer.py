"""Text to token ids and back."""

from __future__ import annotations

import codecs
import threading
from collections.abc import Sequence
from functools import lru_cache

import tokenizers

from shared.config.errors import RinglineError
from shared.config.quote import one_line


class Tokenizer:
    """Byte-level BPE of one model. Any text can be encoded; calls from several threads are safe."""

    def __init__(self, definition: str, n_vocab: int) -> None:
        """`definition`: what `tokenizer_build.tokenizer_json` returns; RinglineError when it is not that."""
        try:
            self._impl = tokenizers.Tokenizer.from_str(definition)
        except Exception as error:  # `tokenizers` raises bare Exception
            raise RinglineError(
                f"the tokenizer cannot be built ({one_line(str(error), 200)}); delete the weight cache"
            ) from None
        self._lock = threading.Lock()
        self._control = frozenset(i for i, t in self._impl.get_added_tokens_decoder().items() if t.special)
        self._added = frozenset(self._impl.get_added_tokens_decoder())
        self._n_vocab = n_vocab

    @property
    def n_vocab(self) -> int:
        """Rows of the model's output head; ids are below."""
        return self._n_vocab

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; the text of a control token in it (`<|im_end|>`) is text like any other."""
        return self._encode(text, plain=True)

    def encode_special(self, text: str) -> list[int]:
        """Ids of trusted text (a template's), in which the texts of control tokens become those tokens."""
        return self._encode(text, plain=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`. Control tokens and padding have none; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, index: int) -> bytes:
        """The bytes a token stands for, possibly a part of a UTF-8 character. ValueError for a wrong id."""
        if not 0 <= index < self._n_vocab:
            raise ValueError(f"token id {index} is not in 0 .. {self._n_vocab - 1}")
        token = None if index in self._control else self._impl.id_to_token(index)
        if token is None:
            return b""
        return token.encode() if index in self._added else _byte_string(token)

    def _encode(self, text: str, plain: bool) -> list[int]:
        clean = text.encode("utf-8", "replace").decode()  # a lone surrogate is no text
        with self._lock:
            self._impl.encode_special_tokens = plain
            ids: list[int] = self._impl.encode(clean, add_special_tokens=False).ids
        return ids


class StreamDecoder:
    """Decodes a stream of tokens piece by piece; keeps at most the three bytes of an unfinished character.

    The pieces joined are `Tokenizer.decode` of all ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Sequence[int]) -> str:
        """The characters that are complete now."""
        return self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, ids)))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, or nothing."""
        return self._decoder.decode(b"", final=True)


def _byte_string(token: str) -> bytes:
    alphabet = _byte_alphabet()
    try:
        return bytes(alphabet[character] for character in token)
    except KeyError:  # not written in the byte alphabet: it stands for itself
        return token.encode()


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's stand-ins: printable Latin-1 bytes are themselves, the others U+0100 and up in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
