"""Says which alarms have fields that cannot be understood, without filling the log with them."""

from __future__ import annotations

import structlog

from services.gateway.alarm import Alarm

MAX_SOURCES = 256  # counted one by one; later ones together

_log = structlog.get_logger()


class DoubtLog:
    """Warns at a source's first doubtful alarm, and again at its 10th, 100th, 1000th … of them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def note(self, topic: str, alarm: Alarm) -> None:
        """A source is what the alarm says it is, or its topic."""
        if not alarm.doubts:
            return
        source = topic if alarm.source is None else alarm.source
        if source not in self._counts and len(self._counts) >= MAX_SOURCES:
            source = "(others)"
        count = self._counts[source] = self._counts.get(source, 0) + 1
        if _is_power_of_ten(count):
            _log.warning(
                "fields of an alarm are not understood",
                topic=topic,
                source=source,
                fields="; ".join(alarm.doubts),
                alarms=count,
            )


def _is_power_of_ten(count: int) -> bool:
    return str(count).rstrip("0") == "1"
