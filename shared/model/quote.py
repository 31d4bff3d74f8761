"""Foreign text in messages: what a model file or a server wrote is quoted, on one line and short."""

from __future__ import annotations

MAX_SHOWN = 64  # characters


def quoted(text: str) -> str:
    """`text` in double quotes; at most MAX_SHOWN characters of it, those that do not print as escapes."""
    return f'"{one_line(text, MAX_SHOWN)}"'


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters, without surroundings; line breaks and other controls become escapes."""
    whole = text[: limit + 1].strip()
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole)
    return escaped if len(escaped) <= limit and len(text) <= limit else escaped[: limit - 3] + "..."


def shown(value: object) -> str:
    """A metadata value: text quoted, a list by its length, anything else (a number) as it is."""
    if isinstance(value, str):
        return quoted(value)
    return f"a list of {len(value)}" if isinstance(value, list) else str(value)
