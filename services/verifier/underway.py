"""What a draft model computes for a sequence at the moment, as far as it has said so. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class Underway:
    """A path behind the known tokens: the model is about to know what follows it."""

    __slots__ = ("_due", "_path")

    def __init__(self) -> None:
        self._path: Sequence[int] | None = None
        self._due = 0.0

    def announce(self, path: Sequence[int] | None, due: float) -> None:
        """It will be known at about `due`, monotonic seconds. None: a path that cannot be taken any more."""
        self._path, self._due = path, due

    def advance(self, tokens: Sequence[int]) -> None:
        """These have become known."""
        n = len(tokens)
        if self._path is not None:
            self._path = self._path[n:] if list(self._path[:n]) == list(tokens) else None

    @property
    def due(self) -> float | None:
        """When what follows the last known token is expected; None: not that is being computed."""
        return self._due if self._path is not None and not self._path else None
