"""Standard error that may go away: a closed terminal or log pipe is no reason to end."""

from __future__ import annotations

import io
import sys
from typing import Any

_DESCRIPTOR = 2


class _Lenient(io.FileIO):
    """What cannot be written is dropped."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def outlive_stderr() -> None:
    """From now on `sys.stderr` raises nothing when nobody reads it any more."""
    raw = _Lenient(_DESCRIPTOR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
