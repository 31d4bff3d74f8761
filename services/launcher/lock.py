"""One launcher for one plant: a second one would fence the services of the first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shared.bus.endpoints import Endpoints
from shared.bus.role_lock import remove_unheld
from shared.config.errors import RinglineError
from shared.config.settings import Paths


@contextmanager
def sole_launcher(paths: Paths) -> Iterator[None]:
    """Hold the socket directory's lock, which the kernel drops whenever this process ends.

    At the end nothing is left there of services that were killed and not started again.
    """
    Endpoints.of(paths)  # makes the directory, or says why it cannot be used
    directory = os.open(paths.runtime, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RinglineError(
                f"a plant already runs in {paths.runtime}: stop it first, or set another paths.runtime"
            ) from None
        try:
            yield
        finally:
            remove_unheld(paths)
    finally:
        os.close(directory)
