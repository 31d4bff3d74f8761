"""The restart budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.launcher.restarts import BACKOFF_LIMIT_S, RestartBudget


def test_each_restart_waits_longer_until_the_budget_is_spent() -> None:
    budget = RestartBudget(restarts=3, window_s=60)
    assert [budget.delay_after(t, t) for t in (0.0, 1.0, 2.0, 3.0)] == [0.2, 0.4, 0.8, None]


def test_a_stable_run_forgets_earlier_deaths() -> None:
    budget = RestartBudget(restarts=2, window_s=10)
    assert budget.delay_after(0, 0) == 0.2
    assert budget.delay_after(1, 1) == 0.4
    assert not budget.was_stable
    assert budget.delay_after(1, 11) == 0.2
    assert budget.was_stable


def test_deaths_outside_the_window_do_not_count() -> None:
    budget = RestartBudget(restarts=1, window_s=10)
    assert [budget.delay_after(t - 9, t) for t in (10.0, 21.0, 32.0)] == [0.2, 0.2, 0.2]


def test_no_restarts_means_none() -> None:
    assert RestartBudget(restarts=0, window_s=10).delay_after(0, 1) is None


@given(st.lists(st.floats(0.01, 5), min_size=50, max_size=50), st.integers(0, 8))
def test_a_window_never_sees_more_restarts_than_allowed(gaps: list[float], restarts: int) -> None:
    budget, now, starts = RestartBudget(restarts, 30.0), 0.0, list[float]()
    for gap in gaps:
        delay = budget.delay_after(now, now + gap)
        now += gap
        if delay is None:
            return
        assert 0 < delay <= BACKOFF_LIMIT_S
        starts.append(now)
        assert sum(now - start < 30.0 for start in starts) <= restarts
        now += delay
