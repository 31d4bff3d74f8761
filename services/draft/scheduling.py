"""How draft's threads share the cores with the verifier's."""

from __future__ import annotations

import os

import structlog

_log = structlog.get_logger()


def wait_for_turns() -> None:
    """This thread and those it begins, when they wake up, wait for a core and take none (SCHED_BATCH).

    The verifier's threads offer theirs between two phases of a pass, every tenth of a millisecond or so. In
    the middle of a phase the other threads of the pass would wait for the one whose core was taken. Another
    policy than the usual one is somebody's choice for this process, and stays.
    """
    try:
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            return
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        _log.warning(
            f"draft may slow down the verifier's passes: SCHED_BATCH is refused here ({error.strerror})"
        )
