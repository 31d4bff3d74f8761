"""Directories and lock files below paths.data."""

from __future__ import annotations

import os
from pathlib import Path

from shared.config.errors import RinglineError


def make_directory(path: Path) -> None:
    """Make it (0700) unless it is there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RinglineError(f"{path}: cannot make this directory: {error.strerror}; set paths.data") from None


def open_lock(path: Path) -> int:
    """The descriptor of a lock file (0600), not locked yet."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RinglineError(f"{path}: cannot make this lock: {error.strerror}; set paths.data") from None
