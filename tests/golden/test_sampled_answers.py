"""Sampling on a real model: SmolLM2's next-token distribution, and stop strings in its answers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from services.verifier.judge import Judge
from services.verifier.stops import no_bytes
from shared.bus.messages.requests import Sampling
from shared.bus.messages.sequences import Draw, SeqOpen
from shared.config.settings import Paths
from shared.model.open import ModelFile, open_model
from shared.model.token_bytes import TokenBytes
from shared.sampling import Distribution, warp
from shared.tree import TokenTrie
from tests.golden.engine_runs import Run
from tests.unit.chi_square import p_value

TEXT = "The alarm says that the pump has stopped. The most likely cause is"
SAMPLING = Sampling(temperature=0.8, top_k=60)
SAMPLES, ENOUGH = 20_000, 4_000
NOBODY = np.zeros(0, np.int64)
SNAPSHOT = SeqOpen(
    seq=1, epoch=0, tokens=[1], prompt_len=1, kv_len=0, draft_kv_len=0, blocks=[], sink=0, ring=64, window=32,
    max_tokens=9, stop_tokens=[], severity=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def file(data_dir: Path) -> ModelFile:
    return open_model("smollm2-135m", Paths(data=data_dir))


@pytest.fixture(scope="module")
def row(file: ModelFile) -> NDArray[np.float32]:
    """The logits of what may follow TEXT: many tokens."""
    tokens = np.array(file.tokenizer().encode(TEXT), np.int32)
    run = Run(file.load(2), 0, 64, 64)
    logits: NDArray[np.float32] = run.chunk(tokens, np.array([len(tokens) - 1], np.int32))[0]
    return logits


class Drafter:
    """Draws two tokens from a distribution that is not quite the target's; a third one is proposed."""

    def __init__(self, row: NDArray[np.float32], said: float = 1.0) -> None:
        """`said`: the exponent with which the drafter lies about its probabilities; 1: it does not."""
        noise = np.random.default_rng(8).standard_normal(len(row)).astype(np.float32)
        self._q = warp(row + 0.8 * noise, NOBODY, SAMPLING.model_copy(update={"top_k": 30}))
        assert self._q.ids is not None
        weights = (self._q.weights / self._q.total) ** said
        self._ids, self._probs = self._q.ids.tolist(), (weights / weights.sum()).tolist()
        self._proposed = int(np.argsort(row)[-3])
        self._random = random.Random(11)

    def tree(self) -> TokenTrie:
        first = self._q.draw(self._random.random())
        second = self._q.without([first]).draw(self._random.random())
        trie = TokenTrie(1)
        draw = Draw.model_construct(parent=-1, children=[0, 1], ids=self._ids, probs=self._probs)
        trie.insert(1, [first, second], [-1, -1], [1, 1], [-0.4, -1.2], [draw])
        trie.insert_path(1, [self._proposed], 0, [-0.9])
        return trie


class Fit:
    """Whether the tokens behind TEXT, each with another seed, fit the target's own distribution."""

    def __init__(self, row: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
        self._p: Distribution = warp(row, NOBODY, SAMPLING)
        monkeypatch.setattr("services.verifier.judge.warp", lambda *_: self._p)  # always the same
        assert self._p.ids is not None
        self._places = {token: i for i, token in enumerate(self._p.ids.tolist())}
        self._row = row

    def __call__(self, drafter: Drafter, sampling: Sampling, samples: int) -> float:
        counts = np.zeros(len(self._places), np.int64)
        for seed in range(samples):
            seeded = sampling.model_copy(update={"seed": seed})
            trie = drafter.tree()
            verdict = Judge(SNAPSHOT.model_copy(update={"sampling": seeded})).judge(
                trie.best(3), trie.root, [], lambda _: self._row, no_bytes, 1
            )
            counts[self._places[verdict.tokens[0]]] += 1
        return p_value(counts, self._p.weights)


def test_ratio_is_plain_sampling_of_the_models_distribution(
    row: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another q than the sampled one would be noticed."""
    ratio, fits = SAMPLING.model_copy(update={"acceptance": "ratio"}), Fit(row, monkeypatch)
    assert fits(Drafter(row), ratio, SAMPLES) > 0.01
    assert fits(Drafter(row, said=0.6), ratio, ENOUGH) < 1e-4


def test_match_is_plain_sampling_of_the_models_distribution(
    row: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Fit(row, monkeypatch)(Drafter(row), SAMPLING, SAMPLES) > 0.01


def test_the_bytes_of_tokens_are_the_tokenizers(file: ModelFile) -> None:
    tokenizer = file.tokenizer()
    table = TokenBytes(lambda: tokenizer)
    n = tokenizer.n_vocab
    for token in [*range(300), *range(300, n, 97), n - 1]:
        assert table(token) == tokenizer.token_bytes(token)
    with pytest.raises(IndexError):
        table(n)
