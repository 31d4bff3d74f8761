"""An alarm: the one form that everything a plant sends is brought into."""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from services.gateway import fields
from services.gateway.payload import PayloadError, changed_by_cleaning, clean, decode_text, json_object
from shared.config.quote import shown

SHORT = 256  # characters of a tag, code, unit or id
CUT = "…"  # in the place of what was too long


def _word(value: Any) -> str | None:
    """A short text; numbers are welcome, too long ones are cut, which the last character then says."""
    if value is None or isinstance(value, dict | list | bool):
        return None
    word = clean(str(value)).strip()
    if len(word) > SHORT:
        word = word[: SHORT - 1] + CUT
    return word or None


def _identity(value: Any) -> AlarmId | None:
    """A number stays one, so that the answer has the id as it came."""
    if isinstance(value, int | float) and fields.number(value) is not None and len(str(value)) <= SHORT:
        return value
    return _word(value)


def _reading(value: Any) -> float | str | None:
    """A number when it is one, else the text as it came ("NaN" and "ON" say something too)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    found = fields.number(value)
    return _word(value) if found is None else found


def _limit(value: Any) -> float | str | None:
    """As `_reading`; true and false are no limits."""
    found = _reading(value)
    return None if isinstance(found, str) and found.lower() in ("true", "false") else found


AlarmId = int | float | str
Word = Annotated[str | None, BeforeValidator(_word)]
Identity = Annotated[AlarmId | None, BeforeValidator(_identity)]
Reading = Annotated[float | str | None, BeforeValidator(_reading)]
Limit = Annotated[float | str | None, BeforeValidator(_limit)]


class Alarm(BaseModel):
    """All but `text` is optional. `ts` is seconds since 1970 in UTC; unknown keys are ignored.

    `id` is what people are shown; alarms are told apart by `parse_content`. `doubts`: a line for each field
    that was sent and not understood.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    text: Annotated[str, Field(min_length=1)]
    id: Identity = None
    source: Word = None
    code: Word = None
    severity: Annotated[int, BeforeValidator(fields.severity)] = fields.DEFAULT_SEVERITY
    ts: Annotated[float | None, BeforeValidator(fields.timestamp)] = None
    value: Reading = None
    unit: Word = None
    limit: Limit = None
    doubts: tuple[str, ...] = ()


class Said(NamedTuple):
    """What tells an alarm with an id from others: its id; all that was sent, id included, but the time."""

    id: bytes
    content: bytes


def parse_alarm(payload: bytes, max_bytes: int) -> Alarm:
    """The alarm in an MQTT payload: a JSON object or plain text. PayloadError names the reason otherwise."""
    return parse_content(payload, max_bytes)[0]


def parse_content(payload: bytes, max_bytes: int) -> tuple[Alarm, Said | None]:
    """The alarm, and if it has an id what was said: what repeats it says the same.

    Nothing of that is cut or cleaned, and every key counts: 1 is not "1", and a known id with anything else
    behind it is another alarm.
    """
    text = decode_text(payload, max_bytes)
    found = json_object(text)
    if found is None:
        return Alarm(text=text), None
    content = {**found, "text": _text(found), "doubts": ()}
    try:
        alarm = Alarm.model_validate(content)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise PayloadError(f'"{where}": {problem["msg"]}') from None
    doubts = fields.doubts(found, alarm.model_dump(exclude={"text", "doubts"}))
    alarm = alarm.model_copy(update={"doubts": doubts})
    if alarm.id is None:
        return alarm, None
    return alarm, Said(json.dumps(found["id"]).encode(), _content(found, alarm, payload))


def _text(found: dict[str, Any]) -> str:
    value = found.get("text")
    if value is None:
        raise PayloadError('JSON without a "text"; add {"text": "what happened"}')
    if not isinstance(value, str):
        raise PayloadError(f'"text" must be text in quotes and is {_kind(value)}')
    text = clean(value).strip()
    if not text:
        raise PayloadError('"text" is empty; say what happened')
    return text


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return shown(value) if isinstance(value, dict | list) else f"the number {shown(value)}"


def _content(found: dict[str, Any], alarm: Alarm, payload: bytes) -> bytes:
    if changed_by_cleaning(payload):
        return payload  # `found` does not say all
    said = {key: value for key, value in found.items() if key != "ts" or alarm.ts is None}
    try:
        return json.dumps(said, sort_keys=True).encode()
    except RecursionError:
        return payload
