"""When a process counts as hung (pure).

Services send heartbeats from a thread of their own: a long step of their work never makes them silent. But a
stopped process does, and a deadlock. Silence counts only while context answers, who reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shared.bus.messages.status import StatusReply

START_S = 900.0  # until it is first heard: the model may have to be re-laid for the CPU
BUSY_S = 300.0  # in one step: the longest pass of the largest model takes a fraction of that
PAUSE_S = 6.0  # without an answer of context, or without being asked: silence before that is not counted
CONTEXT = "context"
_NEVER = float("-inf")


class Running(NamedTuple):
    """A process of the plant; `started` in monotonic seconds."""

    name: str
    pid: int
    started: float


def why_hung(silent_s: float, ever_heard: bool, busy_s: float, hang_s: float) -> str | None:
    """What is wrong with a process that was last heard, or was started, `silent_s` seconds ago."""
    if silent_s > (hang_s if ever_heard else max(START_S, hang_s)):
        return f"has hung: not heard for {silent_s:.0f} s"
    if busy_s > max(BUSY_S, hang_s):
        return f"has hung: in one step for {busy_s:.0f} s"
    return None


class Heard:
    """What context's answers say about each process, and since when. Times are monotonic seconds."""

    def __init__(self, hang_s: float) -> None:
        self._hang_s = hang_s
        self._heard: dict[tuple[str, int], tuple[float, float]] = {}  # (name, pid): when, busy seconds
        self._answered = _NEVER  # context's last answer
        self._answering_since = _NEVER
        self._asked = _NEVER
        self._asking_since = _NEVER

    def reply(self, reply: StatusReply, now: float) -> None:
        if now - self._answered > PAUSE_S:
            self._answering_since = now
        self._answered = now
        for service in reply.services:
            self._heard[service.role, service.pid] = (now - service.age_s, service.busy_s)

    def hung(self, running: Iterable[Running], now: float) -> dict[str, str]:
        """Names and what is wrong. After a pause of this process nobody is judged by what it has missed."""
        processes = list(running)
        if now - self._asked > PAUSE_S:
            self._asking_since = now
        self._asked = now
        known = {(process.name, process.pid) for process in processes}
        self._heard = {key: heard for key, heard in self._heard.items() if key in known}
        verdicts = {process.name: self._judge(process, now) for process in processes}
        return {name: why for name, why in verdicts.items() if why is not None}

    def _judge(self, process: Running, now: float) -> str | None:
        if process.name == CONTEXT:
            since = self._asking_since
        elif now - self._answered > PAUSE_S:
            return None
        else:
            since = max(self._asking_since, self._answering_since)
        heard, busy_s = self._heard.get((process.name, process.pid), (_NEVER, 0.0))
        ever = heard >= process.started
        silent = now - max(heard, process.started, since)
        return why_hung(silent, ever, busy_s if ever else 0.0, self._hang_s)
