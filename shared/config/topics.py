"""MQTT topics and filters. Pure.

A pattern level is literal text, `+` (one level) or `#` (the rest, also nothing). In a template, which is an
answer topic or a stream's name, `{1}`, `{2}` … stand for what the filter's wildcards matched; everything else
is literal, so an answer cannot leave the topics that the configuration names.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from shared.config.quote import quoted

STREAM = "/stream"
MAX_TOPIC_BYTES = 65_535
MAX_SLASHES = 200  # mosquitto ends the connection for more
WILDCARD = re.compile(r"\{([1-9][0-9]?)\}")


def levels_of(topic_filter: str) -> list[str]:
    """A filter's levels; of a shared subscription (`$share/group/filter`) those of its filter."""
    levels = topic_filter.split("/")
    return levels[2:] if levels[0] == "$share" else levels


def wildcards_of(levels: list[str]) -> list[str]:
    """What `{1}`, `{2}` … stand for."""
    return [level for level in levels if level in ("+", "#")]


def match(levels: list[str], topic: str) -> list[str] | None:
    """What a filter's wildcards match in `topic`, or None. A topic with `$` needs a literal first level."""
    if topic.startswith("$") and levels[0] in ("+", "#"):
        return None
    parts = topic.split("/")
    captured: list[str] = []
    for index, level in enumerate(levels):
        if level == "#":
            return [*captured, "/".join(parts[index:])]
        if index >= len(parts) or level not in ("+", parts[index]):
            return None
        if level == "+":
            captured.append(parts[index])
    return captured if len(parts) == len(levels) else None


def places_problem(template: str, topic_filter: str) -> str | None:
    """Why `template` cannot be filled in from what the filter's wildcards match."""
    if set(WILDCARD.sub("", template)) & {"{", "}"}:
        return "braces are only for {1}, {2} …"
    most = len(wildcards_of(levels_of(topic_filter)))
    for found in WILDCARD.finditer(template):
        if int(found[1]) > most:
            return f"{found[0]} needs more wildcards than {quoted(topic_filter, 200)} has"
    return None


def substitute(template: str, captured: list[str]) -> str:
    """`template` with its `{n}` replaced, in one pass: what is put in is never looked at again."""
    return WILDCARD.sub(lambda found: captured[int(found[1]) - 1], template)


def answer_pattern(levels: list[str], answer: str) -> list[str]:
    """An answer template as a pattern: a level that is all `{n}` becomes that wildcard of the filter."""
    wildcards = wildcards_of(levels)
    pattern = []
    for level in answer.split("/"):
        whole = WILDCARD.fullmatch(level)
        pattern.append(wildcards[int(whole[1]) - 1] if whole else level)
    return pattern


def overlap(one: list[str], other: list[str]) -> bool:
    """Whether some topic matches both patterns. A level of `one` may be part literal, part `{n}`."""

    @cache
    def meet(i: int, j: int) -> bool:
        """Of what is left behind i and j levels."""
        if i == len(one) or j == len(other):
            return one[i:] in ([], ["#"]) and other[j:] in ([], ["#"])
        if one[i] == "#":
            return other[j] == "#" or any(meet(i + 1, n) for n in range(j, len(other) + 1))
        if other[j] == "#":
            return True
        return _levels_meet(one[i], other[j]) and meet(i + 1, j + 1)

    return meet(0, 0)


def _levels_meet(first: str, second: str) -> bool:
    if "+" in (first, second):
        return True
    head, *pieces = WILDCARD.sub("\0", first).split("\0")
    if not pieces:
        return head == second
    tail = pieces.pop()
    end = len(second) - len(tail)
    if not (second.startswith(head) and second.endswith(tail) and len(head) <= end):
        return False
    position = len(head)
    for piece in pieces:
        found = second.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True


def topic_problem(topic: str) -> str | None:
    """Why nothing, or no stream below it, can be published to `topic` (MQTT 5, 4.7 and 1.5.4)."""
    if not topic:
        return "it is empty"
    if topic.startswith("$"):
        return "it begins with $, which is the broker's"
    if set(topic) & {"+", "#"}:
        return "it contains + or #, which are for filters"
    if any(unicodedata.category(char) in ("Cc", "Cs") or _is_noncharacter(ord(char)) for char in topic):
        return "it contains a character that brokers refuse"
    if len((topic + STREAM).encode()) > MAX_TOPIC_BYTES:
        return f"with {STREAM} it is longer than the {MAX_TOPIC_BYTES} bytes that MQTT allows"
    if (topic + STREAM).count("/") > MAX_SLASHES:
        return f"with {STREAM} it has more than {MAX_SLASHES} slashes"
    return None


def _is_noncharacter(code: int) -> bool:
    """Unicode 23.7."""
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
