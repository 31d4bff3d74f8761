"""Foreign text in messages and log lines: one short line, whatever a file, a socket or a server wrote."""

from __future__ import annotations

MAX_SHOWN = 64  # characters
_MAX_BITS = 128  # of a number that is written out


def quoted(text: str, limit: int = MAX_SHOWN) -> str:
    """`text` in double quotes; at most `limit` characters of it, those that do not print as escapes."""
    return f'"{one_line(text, limit)}"'


def one_line(text: str, limit: int) -> str:
    """At most `limit` characters, without surroundings; line breaks and other controls become escapes."""
    whole = text[: limit + 1].strip()
    escaped = whole if whole.isprintable() else "".join(map(_printable, whole))
    return escaped if len(escaped) <= limit and len(text) <= limit else escaped[: limit - 3] + "..."


def shown(value: object) -> str:
    """A value from a file: text quoted, a list by its length, anything else (a number) as it is."""
    match value:
        case str():
            return quoted(value)
        case list():
            return f"a list of {len(value)}"
        case dict():
            return f"a table of {len(value)}"
        case int() if value.bit_length() > _MAX_BITS:
            return f"a number of {value.bit_length()} bits"
    return str(value)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
