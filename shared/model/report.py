"""Telling the user how a long step goes: a progress bar on a terminal, log lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import structlog

Advance = Callable[[int], None]

_LOG_EVERY_S = 5.0


class Report(Protocol):
    def say(self, line: str) -> None:
        """One line the user should see."""

    def progress(self, what: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
        """A step of `total` bytes, `done` of them already there; call the result with each further number."""


class LogReport:
    """Log lines, at most one every few seconds of a step and one at its end."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()

    def say(self, line: str) -> None:
        self._log.info(line)

    @contextmanager
    def progress(self, what: str, total: int, done: int = 0) -> Iterator[Advance]:
        start = last = time.monotonic()
        count = done

        def advance(n: int) -> None:
            nonlocal count, last
            count += n
            if time.monotonic() - last >= _LOG_EVERY_S:
                last = time.monotonic()
                self._log.info(what, percent=100 * count // max(total, 1))

        yield advance
        self._log.info(
            f"{what}: done", megabytes=round(total / 1e6), seconds=round(time.monotonic() - start, 1)
        )


def default_report() -> Report:
    if not sys.stderr.isatty():
        return LogReport()
    from shared.model.terminal import TerminalReport  # rich costs memory that a service should not pay

    return TerminalReport()
