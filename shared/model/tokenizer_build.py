"""A `tokenizers` BPE from a GGUF's vocabulary, equal to the published tokenizer of its family.

Where the published tokenizer and llama.cpp disagree, the published one is followed, because it made the ids
the model was trained on: Qwen normalises to NFC, and only tokens that the GGUF marks as control are special
(llama.cpp also makes `</s>` of the Qwen vocabulary one, by its text).
"""

from __future__ import annotations

import json
from typing import Any

from shared.model.vocabulary import TokenType, Vocabulary

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def tokenizer_json(vocabulary: Vocabulary) -> str:
    """The tokenizer in the format of `tokenizers` (tokenizer.json), ready to be kept in the weight cache."""
    normalizer, pre_tokenizer = _splitting(vocabulary.pre)
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": _added_tokens(vocabulary),
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": None,  # Tokenizer.decode works on bytes itself
            "model": _bpe(vocabulary),
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _bpe(vocabulary: Vocabulary) -> dict[str, Any]:
    # Control tokens are entries too, so that the added tokens keep their ids; no merge leads to them.
    used = {t: i for i, t in enumerate(vocabulary.tokens) if vocabulary.types[i] != TokenType.UNUSED}
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": used,
        "merges": [list(pair) for pair in vocabulary.merges],
    }


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Control tokens are matched only on request; user-defined ones are matched in any text."""
    kinds = {TokenType.CONTROL: True, TokenType.USER_DEFINED: False}
    return [
        {
            "id": index,
            "content": vocabulary.tokens[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kinds[TokenType(kind)],
        }
        for index, kind in enumerate(vocabulary.types)
        if kind in kinds
    ]


def _splitting(pre: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Normalizer and pre-tokenizer of `tokenizer.ggml.pre`, as the family publishes them."""
    if pre == "qwen2":
        split = {"type": "Split", "pattern": {"Regex": _QWEN2_SPLIT}, "behavior": "Isolated", "invert": False}
        return {"type": "NFC"}, _sequence(split, _byte_level(use_regex=False))
    if pre == "smollm":
        return None, _sequence({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True))
    return None, _byte_level(use_regex=True)


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
