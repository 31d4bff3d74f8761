"""Who waits to be let in: submitted requests, and those that had to make room for a critical one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from services.context.sequence import Sequence
from shared.bus.messages.requests import Submit


@dataclass(frozen=True)
class Waiting:
    """`paused`: it had begun; its tokens and counters so far. `deadline`: monotonic seconds."""

    submit: Submit
    deadline: float | None
    paused: Sequence | None = None

    @property
    def rank(self) -> tuple[int, bool, float]:
        """The most severe first, then whoever had begun, the oldest first."""
        return -self.submit.severity, self.paused is None, self.paused.started if self.paused else 0.0


class WaitingQueue:
    """Bounded: new requests by `capacity`, paused ones by how many can be live: none is let in for one that
    is paused and not more severe."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: dict[str, Waiting] = {}  # by request id, in order of arrival

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    def __iter__(self) -> Iterator[Waiting]:
        return iter(sorted(self._waiting.values(), key=lambda waiting: waiting.rank))

    def get(self, request_id: str) -> Waiting | None:
        return self._waiting.get(request_id)

    def push(self, submit: Submit, deadline: float | None) -> Submit | None:
        """Add it. Returns who finds no place: the least severe, and the latest among equals; maybe itself."""
        self._waiting[submit.request_id] = Waiting(submit, deadline)
        new = [waiting.submit for waiting in self._waiting.values() if waiting.paused is None]
        if len(new) <= self._capacity:
            return None
        loser = min(reversed(new), key=lambda waiting: waiting.severity)
        del self._waiting[loser.request_id]
        return loser

    def pause(self, sequence: Sequence) -> None:
        """Put a request back that had begun."""
        submit = Submit(
            request_id=sequence.request_id,
            profile=sequence.profile,
            tokens=sequence.tokens[: sequence.prompt_len],
            max_tokens=sequence.max_tokens,
            stop_tokens=sequence.stop_tokens,
            stop=sequence.stop,
            sampling=sequence.sampling,
            severity=sequence.severity,
        )
        self._waiting[submit.request_id] = Waiting(submit, sequence.deadline, sequence)

    def remove(self, request_id: str) -> Waiting | None:
        return self._waiting.pop(request_id, None)

    def overdue(self, now: float) -> list[Waiting]:
        return [w for w in self._waiting.values() if w.deadline is not None and w.deadline <= now]
