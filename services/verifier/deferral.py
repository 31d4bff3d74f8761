"""When to start a pass: now, or a little later because a better draft is worth waiting for.

A pass starts at once when a prefill chunk waits, when no drafter has been heard lately, when the node
budget is reached, or when a draft ends at a phrase boundary. Otherwise it may wait `max_wait_s` from a
sequence's oldest proposal (from the moment the sequence was ready, when it has none), not much longer than
drafters have needed lately, and only if that is worth it: a wait brings the draft tokens that earlier waits
brought, each is worth the time that a token takes at the moment, and it costs what earlier waits took.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from shared.tree import Selection

SILENCE_S = 1.0  # a drafter that was not heard for so long is not waited for
NEWS = 0.05  # weight of the newest observation in moving averages of what waits bring: most bring nothing
HOPE = 0.5  # tokens that a wait is hoped to bring before there is evidence
AT_HAND = 1
_JITTER_S = 0.0005
_SLOW_NEWS = 0.1  # and of how long they take
_SOONEST, _LATEST = 8, 64  # passes after which a wait is tried again


class Patience:
    """What one sequence's waits have brought: accepted draft tokens that came meanwhile (moving average).

    Kept apart for waits with an empty trie and with some drafts at hand. Waits that bring nothing end, and
    are tried again after more and more passes.
    """

    __slots__ = ("_gain", "_passes", "_pause")

    def __init__(self) -> None:
        self._gain = [HOPE, HOPE]
        self._passes = [0, 0]  # since the last wait
        self._pause = [_SOONEST, _SOONEST]  # passes until the next trial

    def copy(self) -> Patience:
        """For another sequence of the same plant."""
        made = Patience()
        made._gain, made._passes, made._pause = self._gain[:], self._passes[:], self._pause[:]
        return made

    def gain(self, drafts: bool) -> float:
        """Tokens that a wait is hoped to bring."""
        return HOPE if self._passes[drafts] >= self._pause[drafts] else self._gain[drafts]

    def learn(self, drafts: bool, waited: bool, late: int) -> None:
        """After a pass: `late` accepted tokens were proposed after the sequence was ready for it."""
        if not waited:
            self._passes[drafts] += 1
            return
        self._passes[drafts] = 0
        self._gain[drafts] += NEWS * (late - self._gain[drafts])
        self._pause[drafts] = _SOONEST if late else min(2 * self._pause[drafts], _LATEST)


class Wait:
    """What one sequence was waited for since it was ready: for first drafts, or, with some at hand, for more.

    The drafts that were at hand first carry the tag AT_HAND.
    """

    __slots__ = ("_at_hand", "_began_empty", "_waited")

    def __init__(self) -> None:
        self._began_empty: bool | None = None
        self._at_hand = False
        self._waited = [False, False]

    def look(self, drafts: Selection) -> None:
        """These would be verified if a pass began now."""
        if self._began_empty is None:
            self._began_empty = len(drafts) == 0
        if not self._at_hand and len(drafts) > 0:
            self._at_hand = True
            for node in drafts.nodes:
                node.tag = AT_HAND

    def go_on(self, drafts: Selection) -> None:
        """It is waited, although there are these."""
        self._waited[len(drafts) > 0] = True

    def end(self, drafts: Selection, accepted: Sequence[int], patience: Patience) -> None:
        """A pass has accepted some of its drafts (indices): `patience` learns what the waits have brought."""
        late = sum(drafts.nodes[i].tag != AT_HAND for i in accepted)
        if self._began_empty:
            patience.learn(False, self._waited[False], len(accepted) - late)
        if self._at_hand:
            patience.learn(True, self._waited[True], late)


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
        self._price_s = max_wait_s  # what a wait takes, moving average
        self._delay_s = max_wait_s  # how soon drafters answer, moving average

    def heard(self, now: float) -> None:
        """A drafter sent something."""
        self._heard_at = now

    def answered(self, seconds: float) -> None:
        """A proposal that was waited for came so long after its sequence was ready."""
        self._delay_s += _SLOW_NEWS * (seconds - self._delay_s)

    def waited(self, seconds: float, in_vain: bool) -> None:
        """A pass began so long after it could have; `in_vain`: no proposal came meanwhile."""
        self._price_s += _SLOW_NEWS * (min(seconds, self._max_wait_s) - self._price_s)
        if in_vain:  # perhaps it was not long enough
            self.answered(self._max_wait_s)

    def wait_s(
        self, now: float, ready: Sequence[tuple[Ready, Selection]], prefill: bool, token_s: float
    ) -> float:
        """Seconds to wait for proposals before the next pass; 0: start it.

        `token_s`: seconds that a token is expected to take in the pass that could start now.
        """
        if prefill or not ready or self._silent(now):
            return 0.0
        drafts = sum(len(selection) for _, selection in ready)
        if drafts >= self._node_budget * len(ready) or any(self._ends_phrase(s) for _, s in ready):
            return 0.0
        waits = [(self._until(sequence), sequence.patience.gain(len(s) > 0)) for sequence, s in ready]
        open_ = [(until, gain) for until, gain in waits if until > now]
        if sum(gain for _, gain in open_) * token_s <= self._price_s:
            return 0.0
        return min(until for until, _ in open_) - now

    def _silent(self, now: float) -> bool:
        return self._heard_at is None or now - self._heard_at > SILENCE_S

    def _until(self, sequence: Ready) -> float:
        """Until when it may be waited for."""
        since = sequence.ready_at if sequence.proposed_at is None else sequence.proposed_at
        return since + min(self._max_wait_s, 2 * self._delay_s + _JITTER_S)

    def _ends_phrase(self, selection: Selection) -> bool:
        """What was sampled does not count: which nodes are in a pass must not depend on what was drawn."""
        return bool(self._boundaries) and any(
            selection.nodes[i].token in self._boundaries and selection.nodes[i].proposed
            for i in selection.leaves()
        )
