"""What a report says, kept."""

from __future__ import annotations

from shared.model.report import LogReport


class Said(LogReport):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)
