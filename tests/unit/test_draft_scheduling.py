"""Draft waits for a core instead of taking one from the middle of a pass."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.draft.scheduling import wait_for_turns


def _policies() -> tuple[int, int]:
    """Of a thread that waits for turns, and of one that it has begun."""
    wait_for_turns()
    with ThreadPoolExecutor(1) as begun:
        return os.sched_getscheduler(0), begun.submit(os.sched_getscheduler, 0).result()


def test_threads_begun_afterwards_wait_for_turns_and_no_others() -> None:
    with ThreadPoolExecutor(1) as draft:
        assert draft.submit(_policies).result() == (os.SCHED_BATCH, os.SCHED_BATCH)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def _idle() -> int:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    wait_for_turns()
    return os.sched_getscheduler(0)


def test_a_policy_that_somebody_chose_stays() -> None:
    """systemd's CPUSchedulingPolicy=idle: draft gets what nobody else wants."""
    with ThreadPoolExecutor(1) as draft:
        assert draft.submit(_idle).result() == os.SCHED_IDLE


def test_a_system_that_refuses_is_said_and_draft_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    wait_for_turns()
    assert "SCHED_BATCH is refused here (Operation not permitted)" in capsys.readouterr().out
