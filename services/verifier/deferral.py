"""When to start a pass: now, or a little later because a better draft is worth waiting for.

A pass starts at once when a prefill chunk waits, when no drafter has been heard lately, when the node
budget is reached, or when a draft ends at a phrase boundary. Otherwise a sequence may wait `max_wait_s`
from its oldest proposal (from the moment it was ready, when it has none), but only as long as its waits
have been paying: a wait is worth the draft tokens it brought in, each of which saves a plain pass.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from shared.tree import Selection

SILENCE_S = 1.0  # a drafter that was not heard for so long is not waited for
NEWS = 0.5  # weight of the newest observation in moving averages


class Patience:
    """What one sequence's waits have brought: accepted draft tokens that came meanwhile (moving average).

    Kept apart for waits with an empty trie and with some drafts at hand.
    """

    __slots__ = ("_gain",)

    def __init__(self) -> None:
        self._gain = [1.0, 1.0]

    def gain(self, drafts: bool) -> float:
        return self._gain[drafts]

    def learn(self, drafts: bool, waited: bool, late: int) -> None:
        """After a pass: `late` accepted tokens were proposed after the sequence was ready for it.

        Without a wait only good news count: late drafts that are right show that waiting would pay.
        """
        if waited or late > self._gain[drafts]:
            self._gain[drafts] += NEWS * (late - self._gain[drafts])


class Ready(Protocol):
    """What deferral sees of a decoding sequence; times are monotonic seconds."""

    @property
    def ready_at(self) -> float: ...
    @property
    def proposed_at(self) -> float | None:
        """When the oldest proposal since `ready_at` came, None: none did."""

    @property
    def patience(self) -> Patience: ...


class Deferral:
    def __init__(self, node_budget: int, max_wait_s: float, boundaries: Collection[int] = ()) -> None:
        self._node_budget = node_budget
        self._max_wait_s = max_wait_s
        self._boundaries = frozenset(boundaries)
        self._heard_at: float | None = None
        self._pass_s = 0.0  # moving average; 0 until the first pass: nothing is waited for before it

    def heard(self, now: float) -> None:
        """A drafter sent something."""
        self._heard_at = now

    def ran(self, seconds: float) -> None:
        """A pass took so long."""
        self._pass_s = seconds if self._pass_s == 0.0 else self._pass_s + NEWS * (seconds - self._pass_s)

    def wait_s(self, now: float, ready: Sequence[tuple[Ready, Selection]], prefill: bool) -> float:
        """Seconds to wait for proposals before the next pass; 0: start it."""
        if prefill or not ready or self._silent(now):
            return 0.0
        drafts = sum(len(selection) for _, selection in ready)
        if drafts >= self._node_budget * len(ready) or any(self._ends_phrase(s) for _, s in ready):
            return 0.0
        return max(0.0, min(self._patient_until(sequence, s) for sequence, s in ready) - now)

    def _silent(self, now: float) -> bool:
        return self._heard_at is None or now - self._heard_at > SILENCE_S

    def _patient_until(self, sequence: Ready, selection: Selection) -> float:
        if sequence.patience.gain(len(selection) > 0) * self._pass_s <= self._max_wait_s:
            return 0.0
        since = sequence.ready_at if sequence.proposed_at is None else sequence.proposed_at
        return since + self._max_wait_s

    def _ends_phrase(self, selection: Selection) -> bool:
        return bool(self._boundaries) and any(
            selection.nodes[i].token in self._boundaries for i in selection.leaves()
        )
