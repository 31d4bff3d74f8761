"""Messages that the broker has answered with a refusal, and when each is worth another try. Pure.

refused ──1 s──▶ again ──4 s──▶ again ──15 s──▶ again ──▶ given up
"""

from __future__ import annotations

from dataclasses import dataclass

_WAITS_S = (1.0, 4.0, 15.0)
MOST = 256  # messages that wait; one more is given up at once


@dataclass(slots=True)
class _Waiting:
    topic: str
    tries: int
    until: float


class Refusals:
    """Only the refused message waits, never another one. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def waiting(self, now: float) -> set[int]:
        """What is not to be published now."""
        return {seq for seq, item in self._waiting.items() if now < item.until}

    def known(self, topic: str) -> bool:
        """Whether something that was refused on this topic waits: then it was said already."""
        return any(item.topic == topic for item in self._waiting.values())

    def settled(self, seq: int) -> None:
        self._waiting.pop(seq, None)

    def refused(self, seq: int, topic: str, now: float) -> bool:
        """Whether it will be tried again; if not it is forgotten here."""
        tries = self._waiting[seq].tries + 1 if seq in self._waiting else 1
        if tries > len(_WAITS_S) or (tries == 1 and len(self._waiting) >= MOST):
            self.settled(seq)
            return False
        self._waiting[seq] = _Waiting(topic, tries, now + _WAITS_S[tries - 1])
        return True
