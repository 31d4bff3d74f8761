"""One process of the plant: start, end, and no life after its launcher."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from services.launcher.process_table import Process
from services.launcher.restarts import RestartBudget
from shared.config.errors import RinglineError
from shared.config.settings import Launcher

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up here: not between fork and exec


class Child:
    """A row of the process table with the process that runs it, if one does."""

    def __init__(self, process: Process, config: Path, limits: Launcher) -> None:
        self.process = process
        self.budget = RestartBudget(limits.restarts, limits.restart_window_s)
        self.start_at: float | None = 0.0  # monotonic; None: runs, or is given up
        self._config = config
        self._popen: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._killed = False

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def pid(self) -> int | None:
        return None if self._popen is None else self._popen.pid

    @property
    def started(self) -> float:
        return self._started

    def start(self) -> None:
        """Run it in a process group of its own: a Ctrl-C at the terminal reaches the launcher alone."""
        try:
            self._popen = subprocess.Popen(
                self.process.command(self._config),
                stdin=subprocess.DEVNULL,
                process_group=0,
                preexec_fn=_die_with(os.getpid()),
            )
        except OSError as error:
            raise RinglineError(f"cannot start {self.name}: {error.strerror}") from None
        self._started = time.monotonic()
        self._killed = False
        self.start_at = None

    def ended(self) -> int | None:
        """Exit code of the process (negative: the signal that ended it) once after its end, else None."""
        if self._popen is None or (code := self._popen.poll()) is None:
            return None
        self._popen = None
        return code

    def kill(self) -> bool:
        """SIGKILL, which ends a stopped process too; `ended` tells when it has. False: it was sent before."""
        if self._popen is None or self._killed:
            return False
        self._popen.kill()
        self._killed = True
        return True

    def stop(self) -> bool:
        """SIGTERM, then SIGKILL after `stop_s`. False when it had to be killed."""
        self.start_at = None
        popen, self._popen = self._popen, None
        if popen is None:
            return True
        popen.send_signal(signal.SIGTERM)
        try:
            popen.wait(self.process.stop_s)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
            return False
        return True


def _die_with(launcher: int) -> Callable[[], None]:
    """Runs in the child: the kernel kills it when the launcher is gone, however that happened."""

    def prepare() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # it died between fork and prctl
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def describe_end(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
