"""Bytes of an MQTT message → text → JSON fields, for what plants really send.

UTF-8 with or without a byte order mark; GBK / GB18030 as the fallback; curly quotes that an office program
put where JSON wants straight ones. What cannot be read raises `PayloadError`, the reason for the dead letter.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_CURLY = str.maketrans(dict.fromkeys("“”„‟＂", '"'))
_UNREADABLE = {"Cn", "Co", "Cs"}  # unassigned, private use, surrogate: what GB18030 yields for random bytes
_MOST_DIGITS = 400  # the largest float has 309


class PayloadError(ValueError):
    """The reason why a payload is no alarm."""


def check_size(size: int, max_bytes: int) -> None:
    """PayloadError when a payload of `size` bytes is not to be looked at."""
    if size > max_bytes:
        raise PayloadError(
            f"payload of {size} bytes is larger than gateway.max_payload_bytes = {max_bytes}; "
            "send less or raise the limit"
        )


def decode_text(payload: bytes, max_bytes: int) -> str:
    """The payload as text without control characters; the size is checked before anything is decoded."""
    check_size(len(payload), max_bytes)
    text = clean(_decode(payload)).strip()
    if not text:
        raise PayloadError("empty payload; send JSON with a text, or plain text")
    return text


def _decode(payload: bytes) -> str:
    try:
        return payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = error.start
    try:
        text = payload.decode("gb18030")
    except UnicodeDecodeError:
        text = "\ue000"
    if any(unicodedata.category(char) in _UNREADABLE for char in text):
        raise PayloadError(f"neither UTF-8 (byte {position} is invalid) nor GB18030; send UTF-8")
    return text


def clean(text: str) -> str:
    """`text` without control characters (but \\n, \\t) and lone surrogates."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
    kept = (char for char in text if char in "\n\t" or unicodedata.category(char) != "Cc")
    return "".join(kept).encode("utf-8", "replace").decode("utf-8")


def changed_by_cleaning(payload: bytes) -> bool:
    """Whether `clean` leaves out or replaces anything of it."""
    text = payload.decode("utf-8", "replace")
    return any(
        char == "\ufeff" or (char not in "\n\t" and unicodedata.category(char) == "Cc") for char in text
    )


def json_object(text: str) -> dict[str, Any] | None:
    """The fields of a JSON object; None when `text` is plain text. PayloadError for JSON that is no alarm."""
    if text.startswith("{"):
        return _object(text)
    if text.startswith(("[", '"')):
        try:
            value = _loads(text)
        except (ValueError, RecursionError):
            return None  # "[ERROR] pump 3" is a log line
        if isinstance(value, list):
            raise PayloadError("JSON array; send one JSON object for each alarm")
    return None


def _object(text: str) -> dict[str, Any]:
    try:
        value = _loads(text)
    except RecursionError:
        raise PayloadError("JSON is nested too deeply") from None
    except ValueError as error:
        value = _repaired(text, error)
    if not isinstance(value, dict):
        raise PayloadError("not a JSON object")
    return value


def _repaired(text: str, error: ValueError) -> Any:
    """Second try with straight quotes: only after the first failed, so that quotes inside a text stay."""
    straight = text.translate(_CURLY)
    if straight == text:
        raise PayloadError(f"not valid JSON: {_short(error)}") from None
    try:
        return _loads(straight)
    except (ValueError, RecursionError) as second:
        raise PayloadError(f'not valid JSON, also with “” read as ": {_short(second)}') from None


def _loads(text: str) -> Any:
    """JSON as controllers write it: raw line breaks inside strings; NaN and Infinity become their names, and
    whole numbers that no controller counts to stay text."""
    return json.loads(text, strict=False, parse_constant=str, parse_int=_whole_number)


def _whole_number(digits: str) -> int | str:
    """Python refuses to read thousands of digits, and with them the alarm around them."""
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def _short(error: Exception) -> str:
    return str(error)[:160]
