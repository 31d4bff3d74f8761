"""`make test-identity`: twenty alarms, answered by the Qwen pair in every way, and always the same.

Alone and in company, with no drafts, arbitrary ones and the draft model's own, with one thread and two, and
in chunks of any size: tokens, ends and logits are those of a sequence that is alone and decoded plainly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from services.verifier.batch import Limits
from shared.bus.messages.requests import GREEDY, Sampling
from shared.config.settings import Paths
from shared.model.open import open_model
from shared.native import Model
from tests.golden.identity import Questions, answer_plainly, answers, check_drafts, check_same, render
from tests.golden.proposers import DraftModel

ANSWER = 24
DEPTH = 5

# Drafts, threads, chunk, company. Each pair of values of any two of them stands in one of the rows.
WAYS = [
    ("none", 1, 1, 2),
    ("none", 2, 16, 0),
    ("none", 1, 64, 2),
    ("arbitrary", 2, 1, 0),
    ("arbitrary", 1, 16, 2),
    ("arbitrary", 2, 64, 2),
    ("model", 2, 1, 2),
    ("model", 1, 16, 0),
    ("model", 1, 64, 0),
]


class Asked:
    """The questions with one way of sampling, and their plain answers."""

    def __init__(self, targets: dict[int, Model], questions: Questions) -> None:
        self.questions = questions
        self.plain = answer_plainly(targets[2], questions, chunk=64)


@pytest.fixture(scope="module")
def targets(data_dir: Path) -> dict[int, Model]:
    file = open_model("qwen2.5-coder-1.5b", Paths(data=data_dir))
    return {threads: file.load(threads) for threads in (1, 2)}


@pytest.fixture(scope="module")
def draft(data_dir: Path) -> Model:
    return open_model("qwen2.5-coder-0.5b", Paths(data=data_dir)).load(2)


@pytest.fixture(
    scope="module",
    params=[GREEDY, Sampling(temperature=0.8, acceptance="match")],
    ids=["greedy", "match at T = 0.8"],
)
def asked(request: pytest.FixtureRequest, data_dir: Path, targets: dict[int, Model]) -> Asked:
    file = open_model("qwen2.5-coder-1.5b", Paths(data=data_dir))
    return Asked(targets, Questions(render(file), file.info.stop_tokens, ANSWER, request.param))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("drafts", "threads", "chunk", "company"), WAYS)
def test_every_way_gives_the_plain_answers(
    asked: Asked,
    targets: dict[int, Model],
    draft: Model,
    drafts: str,
    threads: int,
    chunk: int,
    company: int,
) -> None:
    questions, plain, target = asked.questions, asked.plain, targets[threads]
    match drafts:
        case "none":
            limits = Limits(0, 1 + company, chunk)
            check_same(answers(target, questions, limits, company), plain)
        case "arbitrary":
            check_drafts(target, questions, plain, chunk, company)
        case _:
            check_drafts(target, questions, plain, chunk, company, DraftModel(draft, DEPTH, 1 + company))


def test_the_answers_are_answers(asked: Asked) -> None:
    """What is compared is twenty different texts, not twenty ends."""
    assert len({tuple(record.tokens) for record in asked.plain.values()}) == len(asked.questions.prompts)
    assert min(len(record.tokens) for record in asked.plain.values()) > 4
