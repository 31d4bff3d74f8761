"""Whether the draft model pays: answers with it and without it, in alternating windows.

The drafted tokens save passes, the model's threads take time from the verifier's, and which is more only the
pace of the answers can tell. A window is some passes; its pace is the mean time an answer takes for a token.
Windows with the other choice are interspersed, at first soon, then more and more rarely, and each is compared
with the window before it, because texts and loads change.

    off off off off ON off off off off …        does not pay: one window in 32, 64, 128
    on  on  on  on OFF on  on  on  on  …        pays

A trial of the model ends early when the answers become slower because the passes do, which is soon clear.

Answers differ more among each other than a model gains, so a few comparisons leave a doubt. A model on a
device or on cores of its own has the benefit of it and works unless it surely costs.
"""

from __future__ import annotations

import math
from collections import deque

WINDOW = 32  # commits of answers a window has
_EARLY = 8  # are enough for a trial that is clearly slower
_CLEARLY = math.log(1.2)
_FIRST = 8  # windows before a trial when nothing is sure
_SOONEST = 32  # windows between two trials that agree
_LATEST = {True: 32, False: 128}  # at most, by what is usual: a trial of what does not pay costs more
_COMPARISONS = 4  # kept
_SPREAD = 0.2  # of the logarithm of a comparison, before there is evidence
_LEAST_GAIN = 0.02  # what a model that takes cores from the verifier has to bring to be switched on


class Pacing:
    """`drafting`: whether the model is to work now. Times are monotonic seconds."""

    def __init__(self, drafting: bool) -> None:
        """`drafting`: the choice to begin with, and whenever there is a doubt."""
        self._favoured = self._usual = drafting
        self._trial = False
        self._last_token: dict[int, float | None] = {}  # by answering sequence
        self._tokens = self._commits = 0
        self._seconds = 0.0
        self._before = self._pass_before = 0.0  # log pace and log seconds a pass before a trial
        self._gains: deque[float] = deque(maxlen=_COMPARISONS)  # log of how much faster it is with the model
        self._pause = self._until_trial = _FIRST

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

    def _pass(self) -> float:
        return math.log(max(self._seconds, 1e-6) / self._commits)

    def _clearly_slower(self) -> bool:
        slower = self._pace() > self._before + _CLEARLY and self._pass() > self._pass_before + _CLEARLY
        return self._trial and slower

    def _end_window(self) -> None:
        if self._trial:
            faster = self._before - self._pace()
            self._gains.append(-faster if self._usual else faster)
            self._trial = False
            self._decide()
        else:
            self._before, self._pass_before = self._pace(), self._pass()
            self._until_trial -= 1
            self._trial = self._until_trial <= 0
        self._tokens = self._commits = 0
        self._seconds = 0.0

    def _decide(self) -> None:
        mean = sum(self._gains) / len(self._gains)
        variance = (sum((g - mean) ** 2 for g in self._gains) + _SPREAD**2) / len(self._gains)
        error = math.sqrt(variance / len(self._gains))
        if self._favoured:
            pays = mean + error > 0.0
        else:
            pays = mean > 0.0 if self._usual else mean - error > _LEAST_GAIN
        as_ever = pays == self._usual and (self._gains[-1] > 0.0) == self._usual
        self._usual = pays
        self._pause = min(max(2 * self._pause, _SOONEST), _LATEST[pays]) if as_ever else _FIRST
        self._until_trial = self._pause
