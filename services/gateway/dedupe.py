"""When an arriving message is one that was taken already. Pure; the journal supplies what was seen.

    what arrives again             how it is recognised                          for how long
    redelivery by the broker       DUP flag, same packet id, same bytes          until it is acknowledged
    retained, after a new session  retain flag, same bytes                       while the journal knows it
    sent twice, with an id         same as the latest alarm with that id on that 1 h when there are no times
                                   topic: content, times within 2 s
    sent twice, without an id      same bytes                                    2 s

A PLC may use an id again for the next occurrence: that has another time or comes later. The same id with
another text, value or severity is a new alarm: it got worse. When it is then as before, that is news as well,
so only the latest alarm of an id counts. One with a time and one without are two. Double answers are a
nuisance, a lost alarm is a fault; where the two meet, the alarm is taken.

A log line is only recognised when it arrives again by the first two ways, or with an id and the same bytes
within an hour: a machine may say the same thing twice in a second, and both times mean something. So the
packet id of a line is remembered longer: an acknowledgement that the broker never got makes it come again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

SAME_MOMENT_S = 2.0
SAME_ID_S = 3600.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """`digest` is of topic and payload, `id_key` of topic and id, `content_key` of topic and all that an
    alarm with an id says but its time; `received` is wall clock."""

    digest: bytes
    id_key: bytes | None
    ts: float | None
    received: float
    retained: bool = False
    redelivered: bool = False  # the DUP flag
    packet: int | None = None  # MQTT packet id
    content_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """An alarm of the journal. `packet` is None once it was acknowledged to the broker."""

    seq: int
    digest: bytes
    id_key: bytes | None
    ts: float | None
    received: float
    packet: int | None
    content_key: bytes | None = None


def digest(topic: bytes, content: bytes) -> bytes:
    """16 bytes that stand for a topic together with a payload or a content."""
    state = hashlib.blake2b(len(topic).to_bytes(4, "big"), digest_size=16)
    state.update(topic)
    state.update(content)
    return state.digest()


def duplicate_of(new: Arrival, seen: Iterable[Seen]) -> Seen | None:
    """The one of `seen`, newest first, that `new` repeats."""
    latest = None  # with that id
    for old in seen:
        if _same_delivery(new, old) or _same_bytes_at_once(new, old):
            return old
        if latest is None and new.id_key is not None and old.id_key == new.id_key:
            latest = old
    return latest if latest is not None and _says_the_same(new, latest) else None


def line_arrived_before(new: Arrival, seen: Iterable[Seen]) -> bool:
    """Whether the log line `new` is one of `seen`."""
    return any(_same_delivery(new, old) or _sent_twice(new, old) for old in seen)


def _same_delivery(new: Arrival, old: Seen) -> bool:
    if new.digest != old.digest:
        return False
    return new.retained or (new.redelivered and new.packet is not None and new.packet == old.packet)


def _sent_twice(new: Arrival, old: Seen) -> bool:
    same = new.digest == old.digest and new.id_key is not None
    return same and _age_s(new, old) <= SAME_ID_S


def _same_bytes_at_once(new: Arrival, old: Seen) -> bool:
    return new.id_key is None and new.digest == old.digest and _age_s(new, old) <= SAME_MOMENT_S


def _says_the_same(new: Arrival, latest: Seen) -> bool:
    if new.content_key != latest.content_key:
        return False
    if new.ts is None or latest.ts is None:
        return new.ts is latest.ts and _age_s(new, latest) <= SAME_ID_S
    return abs(new.ts - latest.ts) <= SAME_MOMENT_S


def _age_s(new: Arrival, old: Seen) -> float:
    """A clock that was set back must not make an alarm new."""
    return abs(new.received - old.received)
