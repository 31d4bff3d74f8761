"""The frame around every service: command line, settings, logging, signals, exit code."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import structlog

from shared.bus.role_lock import sole_process
from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.logging import configure_logging
from shared.config.settings import Settings
from shared.config.signals import stop_event
from shared.config.stderr import outlive_stderr

EXIT_REFUSED = 2  # what a restart does not mend: configuration, a missing model, a refusal by context
EXIT_RESTART = 3  # what a restart mends: shared memory that is gone, a place taken by a newer process

# A thread that waits for the interpreter gets it after this time; the default of 5 ms would be the latency of
# a message that is sent while the other thread computes.
_SWITCH_INTERVAL_S = 0.0005


def run_service(name: str, main: Callable[[Settings, threading.Event], int]) -> NoReturn:
    """Run `main(settings, stop)` and exit with what it returns. SIGTERM, SIGINT, SIGHUP, SIGQUIT set `stop`.

    One process of that name runs in a runtime directory. A RinglineError becomes one line on stderr and exit
    code 2, or 3 when a restart mends it.
    """
    parser = argparse.ArgumentParser(prog=f"services.{name}", allow_abbrev=False)
    parser.add_argument("--config", type=Path, required=True, help="the plant's ringline.toml")
    arguments = parser.parse_args()
    outlive_stderr()
    stop = stop_event()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        settings = load_settings(arguments.config)
        configure_logging(settings.log, name)
        with sole_process(settings.paths, name):
            code = main(settings, stop)
    except RinglineError as error:
        print(f"ringline {name}: {error}", file=sys.stderr, flush=True)
        sys.exit(EXIT_RESTART if error.restart_mends else EXIT_REFUSED)
    structlog.get_logger().info("stopped", code=code)
    sys.exit(code)
