"""Messages that were under way when a connection ended: one of them may be why. Pure.

A broker hangs up on a packet that it does not like and does not say on which. So whatever was under way is
sent again alone. Once that has cost a connection too, the message waits until the connection has been good
for a while: all others go first, and it costs one connection in a while instead of each.

    under way with others ──▶ 1 strike: alone, first ──▶ 2, 3 strikes: alone, later ──▶ 4: another form
                                                              ▲                            │
                                                              └────────────────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass

from services.gateway.journal import Outgoing

STRIKES = 4
CALM_S = 5.0  # a connection that lasted so long is a good one
_AFTER_CHANGE = 2


@dataclass(slots=True)
class _Suspect:
    message: Outgoing
    strikes: int


class Suspects:
    def __init__(self) -> None:
        self._suspects: dict[int, _Suspect] = {}

    def __contains__(self, seq: int) -> bool:
        return seq in self._suspects

    @property
    def seqs(self) -> set[int]:
        return set(self._suspects)

    def strike(self, message: Outgoing) -> bool:
        """The connection ended while it was under way. Whether that happened too often in this form."""
        suspect = self._suspects.setdefault(message.seq, _Suspect(message, 0))
        suspect.strikes += 1
        return suspect.strikes >= STRIKES

    def changed(self, message: Outgoing) -> None:
        """It has another form now, which has to prove itself as well."""
        if message.seq in self._suspects:
            self._suspects[message.seq] = _Suspect(message, _AFTER_CHANGE)

    def settled(self, seq: int) -> None:
        self._suspects.pop(seq, None)

    def next(self, connected_s: float, skip: set[int]) -> Outgoing | None:
        """Which is to be sent alone now, on a connection that is so old."""
        due = [
            suspect
            for seq, suspect in self._suspects.items()
            if seq not in skip and (suspect.strikes == 1 or connected_s >= CALM_S)
        ]
        return min(due, key=lambda suspect: suspect.strikes).message if due else None
