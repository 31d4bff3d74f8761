"""The branch prior: what the plant has said before orders what the draft model says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.draft.children import WIDTH, likeliest
from services.draft.history import Answer, History
from services.draft.plant import Plant
from services.draft.prior import UNKNOWN, BranchPrior, reorder
from shared.bus.messages.sequences import SeqOpen

LOGITS = np.log(np.array([0.05, 0.6, 0.3, 0.03, 0.02], np.float32))


def asked(tokens: list[int]) -> SeqOpen:
    return SeqOpen(
        seq=1, epoch=0, tokens=tokens, prompt_len=len(tokens), kv_len=0, draft_kv_len=0, blocks=[0], sink=0,
        ring=64, window=32, max_tokens=64, stop_tokens=[], severity=1,
    )  # fmt: skip


def test_a_prior_that_knows_nothing_changes_nothing() -> None:
    children = likeliest(LOGITS)
    again = likeliest(LOGITS, lambda tokens: [UNKNOWN] * len(tokens))
    assert children.tokens == again.tokens == [1, 2, 0]
    assert again.logq == pytest.approx(children.logq, abs=1e-5)


def test_what_the_plant_has_said_comes_first() -> None:
    """The model would say 1; here 3 has followed, which the model thinks unlikely."""
    history = History(1000, [Answer.of([50, 51, 52], [60, 61, 3, 62]) for _ in range(5)])
    prior = BranchPrior(asked([50, 51, 52]), Plant(history))
    prior.advance([60])
    children = likeliest(LOGITS, prior.behind((61,)))
    assert children.tokens[0] == 3
    assert math.exp(children.logq[0]) > 0.3
    assert len(children.tokens) <= WIDTH


@given(
    st.lists(st.floats(-12, 0), min_size=1, max_size=8),
    st.lists(st.floats(-12, 0), min_size=8, max_size=8),
)
def test_scores_stay_probabilities(raw: list[float], prior: list[float]) -> None:
    total = math.log(math.fsum(map(math.exp, raw)) + 0.01)
    logq = [value - total for value in raw]
    tokens, ordered = reorder(list(range(len(logq))), logq, prior[: len(logq)])
    assert sorted(tokens) == list(range(len(logq)))
    assert ordered == sorted(ordered, reverse=True)
    assert math.fsum(map(math.exp, ordered)) <= 1.0 + 1e-9


def test_a_history_that_changes_meanwhile_is_looked_at_anew() -> None:
    history = History(1000)
    prior = BranchPrior(asked([50, 51, 52]), Plant(history)).behind((60, 61))
    unknown = prior([3, 4])
    assert unknown[0] == unknown[1] == pytest.approx(UNKNOWN)
    history.add(Answer.of([50, 51, 52], [60, 61, 3, 62]))
    known = prior([3, 4])
    assert known[0] > known[1]
