"""Token ids equal the references; where those disagree, the published tokenizer is followed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shared.config.settings import Paths
from shared.model.open import open_model
from shared.model.tokenizer import StreamDecoder, Tokenizer

DATA = Path(__file__).resolve().parents[1] / "data"
VOCABULARIES = {"smollm2": "smollm2-135m", "qwen25": "qwen2.5-coder-0.5b"}

pytestmark = pytest.mark.parametrize("vocabulary", VOCABULARIES)


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def expected(vocabulary: str) -> dict[tuple[str, str], list[int]]:
    """llama.cpp's ids, and the published tokenizer's where it is known to differ (NFC; `</s>` is text)."""
    ids = {
        (text["id"], mode): text[f"ids_{mode}"]
        for text in lines(f"tok_{vocabulary}.jsonl")
        for mode in ("special", "plain")
    }
    for case in lines(f"tok_{vocabulary}_disagreements.jsonl"):
        assert ids[case["id"], case["mode"]] == case["llamacpp_ids"]
        ids[case["id"], case["mode"]] = case["hf_ids"]
    return ids


@cache
def tokenizer_of(data_dir: Path, vocabulary: str) -> Tokenizer:
    return open_model(VOCABULARIES[vocabulary], Paths(data=data_dir)).tokenizer()


def test_ids_equal_the_references(vocabulary: str, data_dir: Path) -> None:
    tokenizer, ids = tokenizer_of(data_dir, vocabulary), expected(vocabulary)
    for text in lines(f"tok_{vocabulary}.jsonl"):
        assert tokenizer.encode(text["text"]) == ids[text["id"], "plain"], text["id"]
        assert tokenizer.encode_special(text["text"]) == ids[text["id"], "special"], text["id"]


def test_decoding_gives_the_text_back_also_token_by_token(vocabulary: str, data_dir: Path) -> None:
    tokenizer = tokenizer_of(data_dir, vocabulary)
    for text in lines(f"tok_{vocabulary}.jsonl"):
        ids = text["ids_plain"]
        assert tokenizer.decode(ids) == text["text"], text["id"]
        decoder = StreamDecoder(tokenizer)
        pieces = [decoder.push([token]) for token in ids] + [decoder.finish()]
        assert "".join(pieces) == text["text"], text["id"]
        halves = [piece for piece in pieces if "\N{REPLACEMENT CHARACTER}" in piece]
        assert not halves or "\N{REPLACEMENT CHARACTER}" in text["text"], text["id"]
