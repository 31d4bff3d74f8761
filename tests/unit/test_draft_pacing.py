"""When the draft model works and whose turn it is: simulated clocks and plants."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.draft.pacing import Pacing
from services.draft.sequences import turn
from shared.tree import Survival

PASS_S = 0.025


class Plant:
    """Answers of 120 tokens; what a pass takes and brings depends on whether the model works."""

    def __init__(self, pacing: Pacing, seed: int = 1) -> None:
        self.pacing = pacing
        self.now = 100.0
        self.tokens = 0
        self.drafting_s = 0.0
        self.texts = [0.8, 1.0, 1.2]  # how much of the mean a pass brings, by answer
        self._draw = random.Random(seed)
        self._seq = 0

    def run(self, seconds: float, slower: float, more: float, plain: float = 1.4) -> float:
        """Tokens a second. With the model a pass takes `slower` times as long and brings `more` as much."""
        began, tokens = self.now, self.tokens
        while self.now < began + seconds:
            self._answer(slower, more, plain)
        return (self.tokens - tokens) / (self.now - began)

    def _answer(self, slower: float, more: float, plain: float) -> None:
        self._seq += 1
        self.pacing.opened(self._seq)
        text = plain * self._draw.choice(self.texts)
        left = 120
        while left > 0:
            working = self.pacing.drafting
            took = PASS_S * (slower if working else 1.0)
            self.now += took
            self.drafting_s += took * working
            mean = text * (more if working else 1.0)
            brought = min(left, 1 + self._count(mean - 1.0))
            left -= brought
            self.tokens += brought
            self.pacing.arrived(self._seq, brought, self.now)
        self.pacing.closed(self._seq)

    def _count(self, mean: float) -> int:
        """Accepted drafts of a pass: bursts, as texts have them."""
        return sum(self._draw.random() < max(0.0, mean) / 4 for _ in range(4))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_model_that_costs_more_than_it_brings_hardly_works(first: bool, seed: int) -> None:
    plant = Plant(Pacing(first), seed)
    plant.run(60.0, slower=1.6, more=1.2)
    plant.drafting_s, began = 0.0, plant.now
    plant.run(120.0, slower=1.6, more=1.2)
    assert 0.0 < plant.drafting_s / (plant.now - began) < 0.03


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_model_that_pays_works_nearly_always(first: bool, seed: int) -> None:
    plant = Plant(Pacing(first), seed)
    plant.run(60.0, slower=1.05, more=1.6)
    plant.drafting_s, began = 0.0, plant.now
    plant.run(120.0, slower=1.05, more=1.6)
    assert plant.drafting_s / (plant.now - began) > 0.9


def test_a_device_that_pays_works_from_the_first_minute_however_much_answers_differ() -> None:
    """On the average over twenty plants."""
    worked = 0.0
    for seed in range(20):
        plant = Plant(Pacing(True), seed)
        plant.texts = [0.6, 1.0, 1.8]
        plant.run(60.0, slower=1.02, more=1.25)
        worked += plant.drafting_s / 60.0 / 20
    assert worked > 0.85


def test_text_that_nothing_predicts_loses_less_than_three_per_cent_from_the_first_minute() -> None:
    plant = Plant(Pacing(False))
    assert plant.run(100.0, slower=1.6, more=1.0, plain=1.0) > 0.97 / PASS_S


def test_it_changes_its_mind_when_the_plant_does() -> None:
    plant = Plant(Pacing(False))
    plant.run(100.0, slower=1.5, more=1.1)
    plant.run(200.0, slower=1.0, more=1.6)
    plant.drafting_s, began = 0.0, plant.now
    plant.run(60.0, slower=1.0, more=1.6)
    assert plant.drafting_s / (plant.now - began) > 0.8
    plant.run(100.0, slower=1.5, more=1.1)
    plant.drafting_s, began = 0.0, plant.now
    plant.run(60.0, slower=1.5, more=1.1)
    assert plant.drafting_s / (plant.now - began) < 0.1


def test_without_answers_it_may_work_and_catch_up() -> None:
    pacing = Pacing(False)
    assert pacing.drafting
    pacing.opened(1)
    assert not pacing.drafting
    pacing.closed(1)
    assert pacing.drafting
    pacing.opened(2)
    pacing.forget()
    assert pacing.drafting


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.floats(0.0, 10.0)), max_size=400),
    st.booleans(),
)
@settings(max_examples=30)
def test_whatever_came_before_it_finds_out_whether_the_model_pays(
    news: list[tuple[int, int, float]], pays: bool
) -> None:
    """Also no time at all between two commits, and commits of sequences that nobody opened."""
    pacing, now = Pacing(not pays), 0.0
    pacing.opened(1)
    pacing.opened(2)
    for seq, tokens, later in news:
        now += later
        pacing.arrived(seq, tokens, now)
    pacing.forget()
    plant = Plant(pacing)
    slower, more = (1.05, 1.6) if pays else (1.6, 1.0)
    plant.run(400.0, slower, more)
    plant.drafting_s, began = 0.0, plant.now
    plant.run(60.0, slower, more)
    assert (plant.drafting_s / (plant.now - began) > 0.5) == pays


@dataclass
class Wanting:
    seq: int
    severity: int
    ahead: int = 0
    served: int = 0


waiting_ = st.lists(st.integers(0, 3), min_size=2, max_size=8).map(
    lambda severities: [Wanting(seq, severity) for seq, severity in enumerate(severities)]
)


def serve(waiting: list[Wanting], leaves: int) -> None:
    """One step of the drafter."""
    for chosen in sorted(waiting, key=turn)[:leaves]:
        chosen.ahead += 1
        chosen.served += 1


@given(waiting_, st.integers(1, 4))
def test_everybody_gets_drafts(waiting: list[Wanting], leaves: int) -> None:
    """Now and then a verdict takes what a sequence had ahead."""
    draw = random.Random(7)
    for _ in range(600):
        serve(waiting, leaves)
        if draw.random() < 0.3:
            draw.choice(waiting).ahead = 0
    assert min(w.served for w in waiting) > 0


@given(waiting_, st.integers(1, 4))
def test_the_severe_ones_are_further_ahead(waiting: list[Wanting], leaves: int) -> None:
    """When not all can be served in every step."""
    for _ in range(200):
        serve(waiting, leaves)
    by_severity = sorted(waiting, key=lambda w: w.severity)
    assert all(a.ahead <= b.ahead for a, b in pairwise(by_severity) if a.severity < b.severity)
    if leaves < len(waiting) and by_severity[0].severity < by_severity[-1].severity:
        assert by_severity[0].ahead < by_severity[-1].ahead


def test_who_has_nothing_ahead_comes_first() -> None:
    first = sorted([Wanting(1, 3, ahead=4), Wanting(2, 0), Wanting(3, 1, ahead=1)], key=turn)
    assert [w.seq for w in first] == [2, 3, 1]


def test_what_a_rejection_leaves_is_summed() -> None:
    survival = Survival()
    survival.add(10, used=2, kept=3)
    survival.add(2, used=0, kept=0)
    assert survival.figures() == {
        "rejections": 2,
        "used_share": 0.167,
        "kept_share": 0.25,
        "mean_share": 0.25,
    }
