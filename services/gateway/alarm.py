"""An alarm: the one form that everything a plant sends is brought into."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from services.gateway import fields
from services.gateway.payload import PayloadError, clean, decode_text, json_object

SHORT = 256  # characters of a tag, code, unit or id


def _word(value: Any) -> str | None:
    """A short text; numbers are welcome, too long ones are cut."""
    if value is None or isinstance(value, dict | list | bool):
        return None
    return clean(str(value)).strip()[:SHORT] or None


def _reading(value: Any) -> float | str | None:
    """A number when it is one, else the text as it came ("NaN" and "ON" say something too)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    found = fields.number(value)
    return _word(value) if found is None else found


Word = Annotated[str | None, BeforeValidator(_word)]
Reading = Annotated[float | str | None, BeforeValidator(_reading)]


class Alarm(BaseModel):
    """All but `text` is optional. `ts` is seconds since 1970 in UTC; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    text: Annotated[str, Field(min_length=1)]
    id: Word = None
    source: Word = None
    code: Word = None
    severity: Annotated[int, BeforeValidator(fields.severity)] = fields.DEFAULT_SEVERITY
    ts: Annotated[float | None, BeforeValidator(fields.timestamp)] = None
    value: Reading = None
    unit: Word = None
    limit: Reading = None


def parse_alarm(payload: bytes, max_bytes: int) -> Alarm:
    """The alarm in an MQTT payload: a JSON object or plain text. PayloadError names the reason otherwise."""
    text = decode_text(payload, max_bytes)
    found = json_object(text)
    if found is None:
        return Alarm(text=text)
    content = found.get("text")
    if not isinstance(content, str) or not (content := clean(content).strip()):
        raise PayloadError('JSON without a "text"; add {"text": "what happened"}')
    try:
        return Alarm.model_validate({**found, "text": content})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise PayloadError(f'"{where}": {problem["msg"]}') from None
