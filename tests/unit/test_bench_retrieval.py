"""The simulation of retrieval drafts: it follows the answer, and chooses what pays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.branch_prior import Judged
from bench.evidence import candidates, fit
from bench.retrieval import Tally, follow, most_for_the_time
from bench.traces import Traced
from services.draft.history import History
from services.draft.plant import Plant
from shared.native import EVIDENCE

FLAT = [1.0] * 30


def item(answer: list[int]) -> Traced:
    return Traced(id="1", key="k", prompt=[1, 2, 3, 4], answer=answer, finish="stop")


def test_an_answer_known_before_takes_few_passes_and_a_new_one_a_pass_a_token() -> None:
    plant, answer = Plant(History(1000)), list(range(100, 140))
    first, again = Tally(), Tally()
    follow(item(answer), 0, plant, FLAT, first)
    follow(item(answer), 0, plant, FLAT, again)
    assert (first.tokens, first.passes) == (40, 40)
    assert again.tokens == 40
    assert again.passes < 10
    assert again.report()["simulated_ratio_to_plain"] > 4


def test_the_fit_finds_the_weights_that_made_the_outcomes() -> None:
    random = np.random.default_rng(3)
    evidence = np.column_stack((np.ones(20_000), random.normal(size=(20_000, 2))))
    made_with = np.array([-0.5, 1.5, -1.0])
    right = random.random(20_000) < 1 / (1 + np.exp(-evidence @ made_with))
    assert fit(evidence, right.astype(np.float64)) == pytest.approx(made_with, abs=0.1)


def test_every_candidate_is_an_example_and_the_answers_token_a_right_one() -> None:
    plant, answer = Plant(History(1000)), [7, 8, 9, 10, 11]
    follow(item(answer), 0, plant, FLAT, Tally())
    examples = list(candidates(item(answer), 0, plant))
    assert [hit for _, hit in examples] == [True] * 5
    assert all(len(evidence) == EVIDENCE for evidence, _ in examples)


@pytest.mark.parametrize(("cost", "expected"), [(0.1, 2), (0.6, 1), (1.0, 0)])
def test_nodes_are_taken_while_they_bring_more_than_they_cost(cost: float, expected: int) -> None:
    tree = [5, 6], [-1, 0], [0, 0], [math.log(0.8), math.log(0.5)]
    curve = [1.0, *(1.0 + cost * n for n in range(5))]
    assert most_for_the_time(tree, curve, 10) == expected
    assert most_for_the_time(tree, curve, 0) == 0


def test_a_token_that_is_no_candidate_is_a_loss() -> None:
    judged = Judged()
    judged.add(([5, 6], [math.log(0.5), math.log(0.25)]), 6)
    judged.add(([5, 6], [math.log(0.5), math.log(0.25)]), 7)
    assert judged.report() == {
        "first": 0.0,
        "one_of_two": 0.5,
        "loss": pytest.approx((math.log(4) + math.log(1e4)) / 2),
    }
