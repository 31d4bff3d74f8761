"""Waiting for what another process or thread is to bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0


def wait_for(
    condition: Callable[[], object],
    what: str,
    log: Callable[[], str] = lambda: "",
    patience_s: float = PATIENCE_S,
) -> None:
    """Until `condition` holds; an AssertionError with `what` and the log as it is then when it never does."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}\n{log()}"
        time.sleep(0.02)
