"""When to start a pass: now, or a little later because a better draft is worth waiting for.

A pass starts at once when a prefill chunk waits, when no drafter has been heard lately, when the node
budget is reached, or when a draft ends at a phrase boundary. Otherwise it may wait `max_wait_s` from a
sequence's oldest proposal (from the moment the sequence was ready, when it has none), not much longer than
drafters have needed lately, and only if that is worth it: a wait brings the draft tokens that earlier waits
brought, each is worth the time that a token takes at the moment, and it costs what earlier waits took.

A draft model says what it computes, and when it expects to be done. When that is what follows the last
known token, and nothing is at hand, the price of waiting is known: the pass waits for it if the time that is
left is worth less than what such waits have brought, also beyond `max_wait_s`, but no longer than a token
takes. With `max_wait_s` 0 nothing is waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from shared.tree import Selection

SILENCE_S = 1.0  # a drafter that was not heard for so long is not waited for
NEWS = 0.05  # weight of the newest observation in moving averages of what waits bring: most bring nothing
HOPE = 0.5  # tokens that a wait is hoped to bring before there is evidence
AT_HAND = 1
_JITTER_S = 0.0005
_LATE_S = 0.002  # by which what is due may be late and is still waited for
_LEAST_S = 0.001  # what waiting for it takes at least: who is always late must not be waited for always
_SLOW_NEWS = 0.1  # and of how long they take
_SOONEST, _LATEST = 8, 64  # passes after which a wait is tried again


class For(IntEnum):
    """What a sequence waits for."""

    FIRST = 0  # it has no drafts
    MORE = 1
    DUE = 2  # it has none, and the draft model is computing the first ones


class Pause(NamedTuple):
    """A wait before the next pass. `due`: for drafts that are being computed."""

    seconds: float
    due: bool


class Patience:
    """What one sequence's waits have brought: accepted draft tokens that came meanwhile (moving average).

    Kept apart by what is waited for. Waits that bring nothing end, and are tried again after more and more
    passes.
    """

    __slots__ = ("_gain", "_passes", "_pause")

    def __init__(self) -> None:
        self._gain = [HOPE] * len(For)
        self._passes = [0] * len(For)  # since the last wait
        self._pause = [_SOONEST] * len(For)  # passes until the next trial

    def copy(self) -> Patience:
        """For another sequence of the same plant."""
        made = Patience()
        made._gain, made._passes, made._pause = self._gain[:], self._passes[:], self._pause[:]
        return made

    def gain(self, what: For) -> float:
        """Tokens that a wait is hoped to bring."""
        return HOPE if self._passes[what] >= self._pause[what] else self._gain[what]

    def learn(self, what: For, waited: bool, late: int) -> None:
        """After a pass: `late` accepted tokens were proposed after the sequence was ready for it."""
        if not waited:
            self._passes[what] += 1
            return
        self._passes[what] = 0
        self._gain[what] += NEWS * (late - self._gain[what])
        self._pause[what] = _SOONEST if late else min(2 * self._pause[what], _LATEST)


class Wait:
    """What one sequence was waited for since it was ready: for first drafts, or, with some at hand, for more.

    The drafts that were at hand first carry the tag AT_HAND.
    """

    __slots__ = ("_at_hand", "_first", "_waited")

    def __init__(self) -> None:
        self._first: For | None = None  # with what it began
        self._at_hand = False
        self._waited = [False] * len(For)

    def look(self, drafts: Selection, due: float | None = None) -> None:
        """These would be verified if a pass began now; `due`: when the first ones are expected."""
        if self._first is None:
            self._first = waits_for(drafts, due)
        if not self._at_hand and len(drafts) > 0:
            self._at_hand = True
            for node in drafts.nodes:
                node.tag = AT_HAND

    def go_on(self, drafts: Selection, due: float | None = None) -> None:
        """It is waited, although there are these; `due`: for those that are being computed, until then."""
        self._waited[waits_for(drafts, due)] = True

    def end(self, drafts: Selection, accepted: Sequence[int], patience: Patience) -> None:
        """A pass has accepted some of its drafts (indices): `patience` learns what the waits have brought."""
        late = sum(drafts.nodes[i].tag != AT_HAND for i in accepted)
        if self._first is not None and self._first is not For.MORE:
            what = next((w for w in (For.DUE, For.FIRST) if self._waited[w]), self._first)
            patience.learn(what, self._waited[what], len(accepted) - late)
        if self._at_hand:
            patience.learn(For.MORE, self._waited[For.MORE], late)


def waits_for(drafts: Selection, due: float | None) -> For:
    if len(drafts) > 0:
        return For.MORE
    return For.FIRST if due is None else For.DUE


class Ready(Protocol):
    """What deferral sees of a decoding sequence; times are monotonic seconds."""

    @property
    def ready_at(self) -> float: ...
    @property
    def proposed_at(self) -> float | None:
        """When the oldest proposal since `ready_at` came, None: none did."""

    @property
    def due(self) -> float | None:
        """When the draft model expects to have its first drafts; None: it is not computing them."""

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

    def pause(
        self, now: float, ready: Sequence[tuple[Ready, Selection]], prefill: bool, token_s: float
    ) -> Pause | None:
        """What to wait for before the next pass; None: start it.

        `token_s`: seconds that a token is expected to take in the pass that could start now.
        """
        if prefill or not ready or self._max_wait_s <= 0 or self._silent(now):
            return None
        drafts = sum(len(selection) for _, selection in ready)
        if drafts >= self._node_budget * len(ready) or any(self._ends_phrase(s) for _, s in ready):
            return None
        return self._for_what_is_due(now, ready, token_s) or self._for_what_may_come(now, ready, token_s)

    def _for_what_is_due(
        self, now: float, ready: Sequence[tuple[Ready, Selection]], token_s: float
    ) -> Pause | None:
        """What is being computed, up to where it is worth the time that is left."""
        due = sorted(
            (sequence.due, until, sequence.patience.gain(For.DUE))
            for sequence, drafts in ready
            if sequence.due is not None and len(drafts) == 0
            if (until := self._until_due(sequence.due, sequence.ready_at, token_s)) > now
        )
        gain = 0.0
        for at, until, more in due:
            gain += more
            if gain * token_s > max(at - now, _LEAST_S):
                return Pause(until - now, due=True)
        return None

    def _for_what_may_come(
        self, now: float, ready: Sequence[tuple[Ready, Selection]], token_s: float
    ) -> Pause | None:
        """Whatever drafters may say soon, by what they have said in earlier waits."""
        waits = [
            (self._until(sequence), sequence.patience.gain(waits_for(drafts, None)))
            for sequence, drafts in ready
        ]
        open_ = [(until, gain) for until, gain in waits if until > now]
        if sum(gain for _, gain in open_) * token_s <= self._price_s:
            return None
        return Pause(min(until for until, _ in open_) - now, due=False)

    def _until_due(self, due: float, ready_at: float, token_s: float) -> float:
        """What is late since before `ready_at` had to share the cores with a pass, and will be there soon."""
        return min(max(due, ready_at) + _LATE_S, ready_at + token_s)

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
