"""Whether the draft model pays: answers with it and without it, in alternating windows.

The drafted tokens save passes, the model's threads take time from the verifier's, and which is more only the
pace of the answers can tell. A window is some passes; its pace is the mean time an answer takes for a token.
Windows with the other choice are interspersed, at first soon, then more and more rarely, and each is compared
with the window before it, because texts and loads change.

    off off off ON off off off off off off ON off …        does not pay: one window in 8, 16, … 64
    on  on  on OFF on  on  …                               pays
"""

from __future__ import annotations

import math
from collections import deque

WINDOW = 32  # commits of answers a window has
_EARLY = 16  # are enough for a trial that is clearly slower
_CLEARLY = math.log(1.25)
_SOONEST, _LATEST = 8, 64  # windows between two trials
_COMPARISONS = 4  # kept
_SPREAD = 0.2  # of the logarithm of a comparison, before there is evidence
_LEAST_GAIN = 0.02  # what the model has to bring to be switched on, and never to be switched off


class Pacing:
    """`drafting`: whether the model is to work now. Times are monotonic seconds."""

    def __init__(self, drafting: bool) -> None:
        """`drafting`: the choice to begin with."""
        self._usual = drafting
        self._trial = False
        self._last_token: dict[int, float | None] = {}  # by answering sequence
        self._tokens = self._commits = 0
        self._seconds = 0.0
        self._before = 0.0  # log pace of the window before a trial
        self._gains: deque[float] = deque(maxlen=_COMPARISONS)  # log of how much faster it is with the model
        self._pause = _SOONEST
        self._until_trial = 1

    @property
    def drafting(self) -> bool:
        """True also while there is no answer that it could slow down."""
        return self._usual != self._trial or not self._last_token

    def opened(self, seq: int) -> None:
        """An answer is to come."""
        self._last_token[seq] = None

    def closed(self, seq: int) -> None:
        self._last_token.pop(seq, None)

    def forget(self) -> None:
        """All sequences are over."""
        self._last_token.clear()

    def arrived(self, seq: int, tokens: int, now: float) -> None:
        """The next tokens of an answer."""
        if seq not in self._last_token or tokens == 0:
            return
        before = self._last_token[seq]
        self._last_token[seq] = now
        if before is None:
            return
        self._tokens += tokens
        self._commits += 1
        self._seconds += now - before
        if self._commits >= WINDOW or (self._commits >= _EARLY and self._clearly_slower()):
            self._end_window()

    def _pace(self) -> float:
        return math.log(max(self._seconds, 1e-6) / self._tokens)

    def _clearly_slower(self) -> bool:
        return self._trial and self._pace() > self._before + _CLEARLY

    def _end_window(self) -> None:
        if self._trial:
            faster = self._before - self._pace()
            self._gains.append(-faster if self._usual else faster)
            self._trial = False
            self._decide()
        else:
            self._before = self._pace()
            self._until_trial -= 1
            self._trial = self._until_trial <= 0
        self._tokens = self._commits = 0
        self._seconds = 0.0

    def _decide(self) -> None:
        mean = sum(self._gains) / len(self._gains)
        variance = (sum((g - mean) ** 2 for g in self._gains) + _SPREAD**2) / len(self._gains)
        error = math.sqrt(variance / len(self._gains))
        pays = mean > 0.0 if self._usual else mean - error > _LEAST_GAIN
        as_ever = pays == self._usual and (self._gains[-1] > 0.0) == self._usual
        self._usual = pays
        self._pause = min(2 * self._pause, _LATEST) if as_ever else _SOONEST
        self._until_trial = self._pause
