"""The vocabulary in a GGUF's metadata."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum

from shared.config.quote import quoted
from shared.model.gguf_read import Gguf

PRE_TOKENIZERS = ("gpt-2", "qwen2", "smollm")  # `tokenizer.ggml.pre` of the splitting rules in tokenizer.py

# Control tokens that end an answer in the families we know, besides the GGUF's own eos and eot.
_END_OF_ANSWER = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>")

# What a phrase ends with: . ! ? ; a newline, and 。 ！ ？ ； in GPT-2's byte alphabet.
_PHRASE_ENDS = (".", "!", "?", ";", "Ċ", "ãĢĤ", "ï¼ģ", "ï¼Ł", "ï¼Ľ")


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Token texts in GPT-2's byte alphabet (control and user-defined tokens: as they are), by id."""

    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[tuple[str, str]]
    stop_tokens: tuple[int, ...]

    def digest(self) -> str:
        """Equal for two models whose token ids mean the same; padding entries do not count."""
        digest = hashlib.blake2b(self.pre.encode(), digest_size=16)
        for index, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)):
            if kind != TokenType.UNUSED:
                digest.update(f"{index}\x00{kind}\x00{token}\x00".encode())
        return digest.hexdigest()

    def phrase_ends(self) -> tuple[int, ...]:
        """Ordinary tokens that end with a full stop, another mark that ends a phrase, or a newline."""
        pairs = zip(self.tokens, self.types, strict=True)
        ordinary = ((i, text) for i, (text, kind) in enumerate(pairs) if kind == TokenType.NORMAL)
        return tuple(i for i, text in ordinary if text.endswith(_PHRASE_ENDS))


def read_vocabulary(gguf: Gguf) -> Vocabulary:
    """The byte-level BPE vocabulary; RinglineError for another kind of tokenizer or inconsistent lists."""
    model = gguf.text("tokenizer.ggml.model")
    if model != "gpt2":
        raise gguf.fail(
            f'tokenizer {quoted(model)} is not supported; use a model with a byte-level BPE ("gpt2")'
        )
    pre = gguf.text("tokenizer.ggml.pre")
    if pre not in PRE_TOKENIZERS:
        known = ", ".join(PRE_TOKENIZERS)
        raise gguf.fail(
            f"pre-tokenizer {quoted(pre)} is not supported (key tokenizer.ggml.pre; supported: {known})"
        )
    tokens = gguf.texts("tokenizer.ggml.tokens")
    types = gguf.integers("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise gguf.fail(f"{len(tokens)} tokens but {len(types)} token types; the file is damaged")
    if len(set(tokens)) != len(tokens):
        raise gguf.fail('key "tokenizer.ggml.tokens" holds a token twice; the file is damaged')
    merges = _merges(gguf, set(tokens))
    return Vocabulary(pre, tokens, types, merges, _stop_tokens(gguf, tokens, types))


def _merges(gguf: Gguf, known: set[str]) -> list[tuple[str, str]]:
    pairs = []
    for line in gguf.texts("tokenizer.ggml.merges"):
        left, separator, right = line.partition(" ")
        if not separator or left not in known or right not in known or left + right not in known:
            raise gguf.fail(
                f'key "tokenizer.ggml.merges": {quoted(line)} is not a merge of two tokens into a third'
            )
        pairs.append((left, right))
    return pairs


def _stop_tokens(gguf: Gguf, tokens: list[str], types: list[int]) -> tuple[int, ...]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    stops = {gguf.integer(key, 0, len(tokens) - 1) for key in keys if key in gguf.metadata}
    control = {text: i for i, text in enumerate(tokens) if types[i] == TokenType.CONTROL}
    stops |= {control[text] for text in _END_OF_ANSWER if text in control}
    if not stops:
        raise gguf.fail('no end-of-text token (key "tokenizer.ggml.eos_token_id"); use a chat model')
    return tuple(sorted(stops))
