"""The files that the others find context by: lost when somebody removes or replaces them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from shared.config.errors import RestartNeeded


class OwnFiles:
    """`paths` as they are now. As long as they are open, no other file gets their inode numbers."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._known = {path: _identity(path) for path in paths}

    def check(self) -> None:
        """RestartNeeded when one is no longer what it was: nobody else can open what this process uses."""
        for path, known in self._known.items():
            if known is None or _identity(path) != known:
                raise RestartNeeded(
                    f"{path} was removed or replaced while the plant runs; context ends, and its next start "
                    "makes the file anew: keep other programs out of this directory"
                )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino
