"""Decoding a stream of tokens: whole characters only, whatever the tokens are and however they are cut."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.errors import RinglineError
from shared.model.tokenizer import StreamDecoder, Tokenizer
from shared.model.tokenizer_build import tokenizer_json
from shared.model.vocabulary import TokenType, Vocabulary

N_VOCAB = 256 + 3  # every byte, a control token, a user-defined one, padding
CONTROL, USER_DEFINED, PADDING = 256, 257, 258


@lru_cache
def bytes_tokenizer(pre: str = "smollm") -> Tokenizer:
    """A vocabulary of single bytes: token i is byte i."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_ins = iter(range(0x100, 0x200))
    tokens = [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]
    types = [TokenType.NORMAL] * 256 + [TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNUSED]
    vocabulary = Vocabulary(pre, [*tokens, "<|im_end|>", "<tool_call>", "[PAD]"], list(types), [], (CONTROL,))
    return Tokenizer(tokenizer_json(vocabulary), N_VOCAB)


@given(st.text())
def test_any_text_is_its_utf8_bytes_and_comes_back(text: str) -> None:
    tokenizer = bytes_tokenizer()
    plain = text.replace("<tool_call>", "")
    assert bytes(tokenizer.encode(plain)) == plain.encode()
    assert tokenizer.decode(tokenizer.encode(plain)) == plain


@given(st.lists(st.lists(st.integers(0, N_VOCAB - 1))))
def test_pieces_of_a_stream_join_to_the_text_of_all_tokens(pieces: list[list[int]]) -> None:
    decoder = StreamDecoder(bytes_tokenizer())
    text = "".join(decoder.push(piece) for piece in pieces) + decoder.finish()
    assert text == bytes_tokenizer().decode([token for piece in pieces for token in piece])


@given(st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"])))
def test_a_character_is_never_shown_in_part(text: str) -> None:
    """Byte by byte, every prefix that was shown is a prefix of the text."""
    decoder = StreamDecoder(bytes_tokenizer())
    shown = ""
    for byte in text.encode():
        shown += decoder.push([byte])
        assert text.startswith(shown)
    assert decoder.finish() == ""


def test_an_unfinished_character_ends_as_a_replacement_character() -> None:
    decoder = StreamDecoder(bytes_tokenizer())
    assert decoder.push(list("报".encode())[:2]) == ""
    assert decoder.finish() == "\ufffd"


def test_control_tokens_come_from_trusted_text_only_and_have_no_text() -> None:
    tokenizer = bytes_tokenizer()
    assert tokenizer.encode("a<|im_end|>") == list(b"a<|im_end|>")
    assert tokenizer.encode_special("a<|im_end|>") == [*b"a", CONTROL]
    assert tokenizer.encode("<tool_call>") == [USER_DEFINED]
    assert tokenizer.decode([CONTROL, PADDING, *b"a", USER_DEFINED]) == "a<tool_call>"


def test_a_lone_surrogate_is_replaced_and_not_an_error() -> None:
    assert bytes_tokenizer().decode(bytes_tokenizer().encode("a\ud800b")) == "a?b"


def test_qwen_normalises_composed_characters_and_smollm_does_not() -> None:
    assert bytes_tokenizer("qwen2").encode("e\u0301") == list("\u00e9".encode())
    assert bytes_tokenizer("smollm").encode("e\u0301") == list("e\u0301".encode())


def test_wrong_ids_and_a_broken_definition_are_refused() -> None:
    with pytest.raises(ValueError, match="token id 259"):
        bytes_tokenizer().decode([N_VOCAB])
    with pytest.raises(RinglineError, match="cannot be built"):
        Tokenizer("{}", 1)
