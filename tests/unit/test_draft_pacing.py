"""When the draft model works, whose turn it is, and what a pause costs: simulated clocks and plants."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.draft.mailbox import MOST_BEHIND, Mailbox
from services.draft.pacing import Pacing
from services.draft.sequences import turn
from shared.bus.messages.sequences import SeqAppend, SeqClose, SeqOpen, SeqState
from shared.tree import Survival

PASS_S = 0.025


class Plant:
    """Answers of 120 tokens; what a pass takes and brings depends on whether the model works."""

    def __init__(self, pacing: Pacing, seed: int = 1) -> None:
        self.pacing = pacing
        self.now = 100.0
        self.tokens = 0
        self.drafting_s = 0.0
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
        text = plain * self._draw.choice([0.8, 1.0, 1.2])
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


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.floats(0.0, 10.0)), max_size=400))
def test_any_news_at_any_time_leave_a_decision(news: list[tuple[int, int, float]]) -> None:
    """Also no time at all between two commits, and commits of sequences that nobody opened."""
    pacing, now = Pacing(True), 0.0
    pacing.opened(1)
    pacing.opened(2)
    for seq, tokens, later in news:
        now += later
        pacing.arrived(seq, tokens, now)
        assert pacing.drafting in (True, False)


# --- a paused reader -------------------------------------------------------------------------------


def opened(seq: int) -> SeqOpen:
    return SeqOpen(
        seq=seq, epoch=0, tokens=[1], prompt_len=1, kv_len=0, draft_kv_len=0, blocks=[0], sink=0, ring=64,
        window=32, max_tokens=8, stop_tokens=[], severity=1,
    )  # fmt: skip


def state(seq: int, epoch: int, tokens: int = 1) -> SeqState:
    return SeqState(seq=seq, epoch=epoch, kv_len=1, tokens=[1] * tokens, first_block=0, blocks=[])


def test_a_paused_reader_sleeps_until_it_is_resumed() -> None:
    mailbox, taken = Mailbox(), list[object]()
    mailbox.pause(True)
    mailbox.put(opened(1))
    reader = threading.Thread(target=lambda: taken.append(mailbox.take(0.0)))
    reader.start()
    reader.join(0.1)
    assert reader.is_alive()
    mailbox.pause(False)
    reader.join(10.0)
    assert taken == [[opened(1)]]


def test_a_paused_reader_can_be_stopped() -> None:
    mailbox, taken = Mailbox(), list[object]()
    mailbox.pause(True)
    reader = threading.Thread(target=lambda: taken.append(mailbox.take(0.0)))
    reader.start()
    mailbox.close()
    reader.join(10.0)
    assert taken == [None]


def test_a_sequence_that_runs_away_during_a_pause_is_given_up_and_the_queue_stays_short() -> None:
    mailbox = Mailbox()
    mailbox.put(opened(1))
    mailbox.put(opened(2))
    mailbox.take(0.0)
    mailbox.pause(True)
    for epoch in range(1, 4 * MOST_BEHIND):
        mailbox.put(state(1, epoch))
    mailbox.put(state(2, 1, MOST_BEHIND))
    mailbox.put(SeqAppend(seq=3, known=1, tokens=[1] * 1000, first_block=0, blocks=[]))
    mailbox.pause(False)
    items = mailbox.take(0.0)
    assert items is not None
    assert len(items) <= MOST_BEHIND + 2
    assert next(item for item in items if not isinstance(item, SeqState)).seq == 1
    assert isinstance(next(item for item in items if getattr(item, "seq", 0) == 1), SeqClose)
    assert state(2, 1, MOST_BEHIND) in items


def test_a_new_snapshot_is_followed_again() -> None:
    mailbox = Mailbox()
    mailbox.pause(True)
    mailbox.put(opened(1))
    mailbox.put(state(1, 1, MOST_BEHIND + 1))
    mailbox.put(opened(1))
    mailbox.put(state(1, 1))
    mailbox.pause(False)
    assert mailbox.take(0.0) == [opened(1), state(1, 1)]


# --- turns -----------------------------------------------------------------------------------------


@dataclass
class Wanting:
    seq: int
    severity: int
    ahead: int = 0
    served: int = 0


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.integers(1, 4))
def test_everybody_gets_drafts_and_the_severe_ones_are_further_ahead(
    severities: list[int], leaves: int
) -> None:
    """Each step serves some; now and then a verdict takes what a sequence had ahead."""
    waiting = [Wanting(seq, severity) for seq, severity in enumerate(severities)]
    draw = random.Random(7)
    for _ in range(600):
        for chosen in sorted(waiting, key=turn)[:leaves]:
            chosen.ahead += 1
            chosen.served += 1
        if draw.random() < 0.3:
            draw.choice(waiting).ahead = 0
    assert min(w.served for w in waiting) > 0
    mildest, severest = min(waiting, key=turn_severity), max(waiting, key=turn_severity)
    if severest.severity > mildest.severity and leaves < len(waiting):
        assert severest.served >= 0.9 * mildest.served


def turn_severity(waiting: Wanting) -> int:
    return waiting.severity


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
