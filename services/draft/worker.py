"""The model's thread: lower priority than everything else, and nobody's loss when it dies."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import structlog

from services.draft.cpu_model import CpuDrafter
from services.draft.mailbox import Mailbox
from shared.config.errors import RinglineError

IDLE_S = 1.0
NICENESS = 19
EVERY_S = 60.0  # between two lines in the log about the run-ahead

_log = structlog.get_logger()


class Worker:
    """Runs a CpuDrafter. `make` loads the model in the thread, whose niceness the model's threads inherit."""

    def __init__(self, make: Callable[[], CpuDrafter], mailbox: Mailbox, nice: bool) -> None:
        self._make = make
        self._mailbox = mailbox
        self._nice = nice
        self._thread = threading.Thread(target=self._run, name="draft-model", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End after the step that is running."""
        self._mailbox.close()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        if self._nice:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            self._draft(self._make())
        except (RinglineError, ValueError, RuntimeError, OSError, MemoryError) as error:
            _log.error("the cpu source has stopped; retrieval goes on", reason=str(error))
        finally:
            self._mailbox.close()

    def _draft(self, drafter: CpuDrafter) -> None:
        worked, said_at, said = False, time.monotonic(), 0
        while (items := self._mailbox.take(0.0 if worked else IDLE_S)) is not None:
            drafter.take(items)
            worked = drafter.step()
            if drafter.drafted > said and time.monotonic() - said_at > EVERY_S:
                said_at, said = time.monotonic(), drafter.drafted
                _say(drafter)
        if drafter.drafted > said:
            _say(drafter)


def _say(drafter: CpuDrafter) -> None:
    """How many tokens were computed since start, and what rejections left of them."""
    _log.info("run-ahead", drafted=drafter.drafted, **drafter.survival.figures())
