"""The JSON that the gateway publishes. Pure.

    answer/stream  {"id", "index", "text"}: `text` follows the first `index` characters of the answer (QoS 0)
    answer         the whole answer with what it cost, or {"id", "error"} (QoS 1)
    dead letter    {"topic", "reason", "size", "payload"} (QoS 1), of a message that is no alarm, or of an
                   answer that the broker does not take on its topic

Times are milliseconds since the alarm reached the gateway; `queued_ms` is when it was submitted.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from services.gateway.alarm import Alarm, AlarmId
from shared.bus.messages.requests import Finished

DEAD_LETTER_BYTES = 4096  # of the payload that are shown
_REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class Timing:
    queued_ms: float
    ttft_ms: float
    duration_ms: float


def stream_delta(alarm_id: AlarmId, index: int, text: str) -> bytes:
    return _json({"id": alarm_id, "index": index, "text": text})


def final_answer(
    alarm_id: AlarmId, alarm: Alarm, cut: bool, text: str, model: str, done: Finished, timing: Timing
) -> bytes:
    """Of `prompt_tokens`, `cached_tokens` were found in the pool; `drafted`, `accepted`: draft tokens.

    `cut`: the model has not seen all of the alarm, because the window has no room for it.
    """
    return _json(
        {
            **_about(alarm_id, alarm),
            "text": text,
            "model": model,
            "finish": done.reason,
            "cut": cut,
            "prompt_tokens": done.prompt_tokens,
            "cached_tokens": done.cached_tokens,
            "answer_tokens": done.answer_tokens,
            "passes": done.passes,
            "drafted": done.drafted,
            "accepted": done.accepted,
            "queued_ms": round(timing.queued_ms, 1),
            "ttft_ms": round(timing.ttft_ms, 1),
            "duration_ms": round(timing.duration_ms, 1),
        }
    )


def error_answer(alarm_id: AlarmId, alarm: Alarm | None, reason: str) -> bytes:
    """What is published when there will be no answer, so that nobody waits for it."""
    about: dict[str, Any] = {"id": alarm_id} if alarm is None else _about(alarm_id, alarm)
    return _json({**about, "error": reason[:_REASON_CHARS]})


def dead_letter(topic: bytes, payload: bytes, size: int, reason: str) -> bytes:
    """Why a message is no alarm, with as much of it as is useful to find the sender."""
    shown = payload[:DEAD_LETTER_BYTES]
    letter: dict[str, Any] = {
        "topic": topic.decode("utf-8", "backslashreplace"),
        "reason": reason[:_REASON_CHARS],
        "size": size,
        "cut": size > len(shown),
    }
    try:
        letter["payload"] = shown.decode("utf-8")
    except UnicodeDecodeError:
        letter["payload_base64"] = base64.b64encode(shown).decode("ascii")
    return _json(letter)


def shorter_answer(payload: bytes, reason: str) -> bytes:
    """An error in the place of an answer."""
    return error_answer(json.loads(payload).get("id", ""), None, reason)


def shorter_letter(payload: bytes) -> bytes | None:
    """A dead letter without what was in the message; None when it is one already."""
    letter = json.loads(payload)
    shorter = {key: value for key, value in letter.items() if not key.startswith("payload")}
    return None if shorter == letter else _json({**shorter, "cut": True})


def _about(alarm_id: AlarmId, alarm: Alarm) -> dict[str, Any]:
    about: dict[str, Any] = {"id": alarm_id, "severity": alarm.severity}
    if alarm.source is not None:
        about["source"] = alarm.source
    if alarm.code is not None:
        about["code"] = alarm.code
    return about


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
