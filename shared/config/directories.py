"""Directories for what other users must neither read nor replace: sockets and shared memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shared.config.errors import RinglineError


def make_private(directory: Path, key: str) -> None:
    """Make `directory` (0700), or check that it is one of this user alone. Errors name the setting `key`."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise RinglineError(
            f'{key} = "{directory}" cannot be made: {error.strerror}; '
            f"set {key} to a directory that this user may create"
        ) from None
    if (
        status.st_uid != os.geteuid()
        or status.st_mode & 0o077
        or not stat.S_ISDIR(status.st_mode)
        or not os.access(directory, os.W_OK | os.X_OK)
    ):
        raise RinglineError(
            f'{key} = "{directory}" must be a directory of this user alone (mode 0700), it has mode '
            f"{stat.S_IMODE(status.st_mode):04o} and owner {status.st_uid}: chmod 700 it or set another one"
        )
