"""Starts the plant's processes, restarts what dies or hangs within a budget, stops everything in order.

  ┌──────── start ────────┐
  ▼                       │ back-off
runs ── ends ── budget? ──┤            (what has hung is killed, which ends it)
                          │ spent, or refused (exit 2) before it was ever stable
                          ▼
            optional: the plant goes on without it
            else:     the plant stops, exit code 1 (2 when it was refused)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from services.launcher.child import Child, describe_end
from services.launcher.hang import Running
from services.launcher.process_table import Process
from shared.config.service import EXIT_REFUSED
from shared.config.settings import Launcher

_TICK_S = 0.05
Report = Callable[[str], None]
FindHung = Callable[[Iterable[Running]], dict[str, str]]  # names, and what is wrong with each


class Supervisor:
    """Runs `table` until `stop` is set or the plant cannot go on. Every event is one line to `report`.

    The kernel kills the children when the thread that started them ends: call `run` from a thread that lives
    as long as the plant. `find_hung` is asked all the time; None: nobody is ever killed for hanging.
    """

    def __init__(
        self,
        table: Iterable[Process],
        config: Path,
        limits: Launcher,
        report: Report,
        find_hung: FindHung | None = None,
    ) -> None:
        self._children = [Child(process, config, limits) for process in table]
        self._report = report
        self._find_hung = find_hung

    def pids(self) -> dict[str, int]:
        """Process id of every child that runs, by name."""
        return {child.name: child.pid for child in self._children if child.pid is not None}

    def run(self, stop: threading.Event) -> int:
        """0 after `stop`, 1 when a service's restarts are used up, 2 when one cannot start at all."""
        try:
            while not stop.is_set():
                code = self._step(time.monotonic())
                if code is not None:
                    return code
                self._kill_hung()
                stop.wait(_TICK_S)
            return 0
        finally:
            self._stop_all()

    def _step(self, now: float) -> int | None:
        for child in self._children:
            code = child.ended()
            if code is not None:
                failed = self._after_end(child, code, now)
                if failed is not None:
                    return failed
            if child.start_at is not None and now >= child.start_at:
                child.start()
                self._report(f"{child.name}: started, pid {child.pid}")
        return None

    def _kill_hung(self) -> None:
        if self._find_hung is None:
            return
        running = [Running(c.name, c.pid, c.started) for c in self._children if c.pid is not None]
        hung = self._find_hung(running)
        for child in self._children:
            if child.name in hung and child.kill():
                self._report(f"{child.name}: {hung[child.name]}; killed")

    def _after_end(self, child: Child, code: int, now: float) -> int | None:
        """Decide what a child's end means. Returns the plant's exit code when it cannot go on."""
        end = describe_end(code)
        delay = child.budget.delay_after(child.started, now)
        refused = code == EXIT_REFUSED and not child.budget.was_stable
        if delay is not None and not refused:
            child.start_at = now + delay
            self._report(f"{child.name}: {end}; next start in {delay:.1f} s")
            return None
        why = (
            "its reason is above and a restart would not change it" if refused else "its restarts are used up"
        )
        if child.process.optional:
            self._report(f"{child.name}: {end}; {why}; the plant goes on without it")
            return None
        self._report(f"{child.name}: {end}; {why}; the plant stops")
        return EXIT_REFUSED if refused else 1

    def _stop_all(self) -> None:
        for child in reversed(self._children):
            if child.pid is None:
                continue
            clean = child.stop()
            self._report(f"{child.name}: {'stopped' if clean else 'did not stop in time and was killed'}")
