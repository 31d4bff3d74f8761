"""One alarm in flight, and its answer as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass

from services.gateway.alarm import Alarm, AlarmId
from services.gateway.answers import Timing
from services.gateway.journal import Waiting
from services.gateway.stops import AnswerDecoder
from shared.bus.messages.requests import Submit


@dataclass(slots=True)
class Request:
    """Times are monotonic seconds. `streamed` is what readers of the stream have, `text` what is certain."""

    row: Waiting
    alarm: Alarm
    alarm_id: AlarmId
    submit: Submit
    decoder: AnswerDecoder
    arrived: float
    submitted: float
    heard: float
    count: int = 0  # answer tokens received
    first: float | None = None  # when the first token came
    text: str = ""
    streamed: str = ""
    resend_at: float | None = None
    gaps: int = 0
    cut: bool = False  # parts of the alarm had no room in the prompt

    @property
    def label(self) -> dict[str, AlarmId]:
        return {"id": self.alarm_id, "topic": self.row.topic}

    def restart(self, decoder: AnswerDecoder) -> None:
        """Its tokens come from the first again: nothing of an earlier answer may be mixed with them."""
        self.decoder = decoder
        self.count = 0
        self.text = ""

    def push(self, text: str) -> tuple[int, str] | None:
        """Add text. Returns what the stream lacks and where it begins; a replay says nothing twice."""
        self.text += text
        if self.streamed.startswith(self.text):
            return None
        index = len(self.streamed) if self.text.startswith(self.streamed) else 0
        self.streamed = self.text
        return index, self.text[index:]

    def timing(self, now: float) -> Timing:
        first = now if self.first is None else self.first
        queued, ttft, duration = (1000.0 * (at - self.arrived) for at in (self.submitted, first, now))
        return Timing(queued, ttft, duration)
