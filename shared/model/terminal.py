"""Progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class TerminalReport:
    """A bar on stderr; stdout stays the command's own."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    @contextmanager
    def progress(self, what: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task(what, total=total, completed=done)
            yield lambda n: bar.advance(task, n)
