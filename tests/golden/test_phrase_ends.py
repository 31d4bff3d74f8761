"""The tokens at which a draft counts as finished end a phrase in the model's own words."""

from __future__ import annotations

from pathlib import Path

from shared.config.settings import Paths
from shared.model.open import open_model

MARKS = tuple("。！？；.!?;\n")


def test_phrase_ends_are_the_ordinary_tokens_that_end_with_a_mark(data_dir: Path) -> None:
    file = open_model("smollm2-135m", Paths(data=data_dir))
    tokenizer = file.tokenizer()
    ends = set(file.info.phrase_ends)
    assert {tokenizer.encode(mark)[-1] for mark in ".!?;\n"} <= ends
    for token in range(100, tokenizer.n_vocab):
        text = tokenizer.decode([token])
        if "\N{REPLACEMENT CHARACTER}" not in text:
            assert (token in ends) == text.endswith(MARKS), (token, text)
