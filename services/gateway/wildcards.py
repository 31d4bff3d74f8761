"""A filter's wildcards, and the `{1}`, `{2}` … of a template that stand for what they matched. Pure."""

from __future__ import annotations

import re

from shared.config.errors import RinglineError

PLACE = re.compile(r"\{([1-9][0-9]?)\}")


def levels_of(topic_filter: str) -> list[str]:
    """A filter's levels; of a shared subscription (`$share/group/filter`) those of its filter."""
    levels = topic_filter.split("/")
    return levels[2:] if levels[0] == "$share" else levels


def wildcards_of(levels: list[str]) -> list[str]:
    """`+` and `#` in their order: `{1}` stands for the first."""
    return [level for level in levels if level in ("+", "#")]


def check_places(where: str, template: str, topic: str) -> list[str]:
    """The wildcards of `topic`; RinglineError when `template` has other braces or asks for more of them."""
    wildcards = wildcards_of(levels_of(topic))
    if set(PLACE.sub("", template)) & {"{", "}"}:
        raise RinglineError(f'{where} "{template}": braces are only for {{1}}, {{2}} …')
    for found in PLACE.finditer(template):
        if int(found[1]) > len(wildcards):
            raise RinglineError(f'{where} "{template}": {found[0]} needs more wildcards than "{topic}" has')
    return wildcards
