"""The tokens that a repetition penalty looks at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.bus.messages.requests import Sampling


class History:
    """The last `window` known tokens of a sequence; nothing when the sampling has no penalty."""

    __slots__ = ("_tokens", "_window")

    def __init__(self, tokens: Sequence[int], window: int, sampling: Sampling) -> None:
        self._window = window if sampling.repetition_penalty != 1 else 0
        self._tokens = np.zeros(0, np.int64)
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        self._tokens = self.behind(tokens)

    def behind(self, path: Sequence[int]) -> NDArray[np.int64]:
        """What is penalised behind `path`, tokens that follow the known ones, as int64 ids."""
        if not self._window:
            return self._tokens
        return np.concatenate((self._tokens, np.array(path, np.int64)))[-self._window :]
