"""Which alarm goes to which profile, and where its answer may go. Pure.

A pattern level is literal text, `+` (one level) or `#` (the rest, also nothing). In an answer topic `{1}`,
`{2}` … stand for what the filter's wildcards matched; everything else is literal, so an answer cannot leave
the topics that the configuration names.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from services.gateway.payload import PayloadError
from shared.config.errors import RinglineError
from shared.config.settings import Route, Settings

STREAM = "/stream"
MAX_TOPIC_BYTES = 65_535
MAX_SLASHES = 200  # mosquitto ends the connection for more
_WILDCARD = re.compile(r"\{([1-9][0-9]?)\}")


@dataclass(frozen=True, slots=True)
class Target:
    """What a topic resolves to."""

    profile: str
    answer: str


class RouteTable:
    """The configured routes, checked once: RinglineError names the route that cannot work."""

    def __init__(self, settings: Settings) -> None:
        if not settings.routes:
            raise RinglineError("no [[routes]] configured: add one with topic, profile and answer")
        self._routes = [(levels_of(route.topic), route) for route in settings.routes]
        for index, route in enumerate(settings.routes):
            where = f"routes[{index}]"
            _check_filter(where, route.topic)
            _check_answer(where, route)
        check_topic("gateway.dead_letter_topic", settings.gateway.dead_letter_topic)
        self._refuse_loops(settings)

    @property
    def filters(self) -> list[str]:
        """What to subscribe to, each once."""
        return list(dict.fromkeys(route.topic for _, route in self._routes))

    def resolve(self, topic: str) -> Target | None:
        """Profile and answer topic of the first route that matches. PayloadError: no topic to publish to.

        A broker ends the connection for a wrong topic; one alarm would then hold up all others for ever.
        """
        for levels, route in self._routes:
            captured = match(levels, topic)
            if captured is not None:
                answer = substitute(route.answer, captured)
                problem = topic_problem(answer)
                if problem is not None:
                    raise PayloadError(f'its answer topic, from "{route.answer}", cannot be used: {problem}')
                return Target(route.profile, answer)
        return None

    def _refuse_loops(self, settings: Settings) -> None:
        outputs = [("gateway.dead_letter_topic", settings.gateway.dead_letter_topic.split("/"))]
        for index, (levels, route) in enumerate(self._routes):
            pattern = _answer_pattern(levels, route.answer)
            outputs.append((f"routes[{index}].answer", pattern))
            outputs.append((f"routes[{index}].answer + {STREAM}", [*pattern, STREAM[1:]]))
        for name, pattern in outputs:
            for levels, route in self._routes:
                if overlap(pattern, levels):
                    raise RinglineError(
                        f'{name} "{"/".join(pattern)}" is matched by the subscribed filter "{route.topic}": '
                        "every answer would come back as an alarm; choose a topic outside the filter"
                    )


def levels_of(topic_filter: str) -> list[str]:
    """A filter's levels; of a shared subscription (`$share/group/filter`) those of its filter."""
    levels = topic_filter.split("/")
    return levels[2:] if levels[0] == "$share" else levels


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


def substitute(answer: str, captured: list[str]) -> str:
    """`answer` with its `{n}` replaced, in one pass: what is put in is never looked at again."""
    return _WILDCARD.sub(lambda found: captured[int(found[1]) - 1], answer)


def overlap(one: list[str], other: list[str]) -> bool:
    """Whether some topic matches both patterns. A level of `one` may be part literal, part `{n}`."""
    if not one or not other:
        return one in ([], ["#"]) and other in ([], ["#"])
    first, second = one[0], other[0]
    if first == "#":
        return True if second == "#" else any(overlap(one[1:], other[n:]) for n in range(len(other) + 1))
    if second == "#":
        return True
    return _levels_meet(first, second) and overlap(one[1:], other[1:])


def _levels_meet(first: str, second: str) -> bool:
    if "+" in (first, second):
        return True
    pieces = re.split(r"\{\d+\}", first)
    return re.fullmatch(".*".join(map(re.escape, pieces)), second, re.DOTALL) is not None


def _answer_pattern(levels: list[str], answer: str) -> list[str]:
    """An answer template as a pattern: a level that is all `{n}` becomes that wildcard of the filter."""
    wildcards = [level for level in levels if level in ("+", "#")]
    pattern = []
    for level in answer.split("/"):
        whole = _WILDCARD.fullmatch(level)
        pattern.append(wildcards[int(whole[1]) - 1] if whole else level)
    return pattern


def check_topic(where: str, topic: str) -> None:
    """RinglineError unless `topic` is one that can be published to."""
    problem = topic_problem(topic)
    if problem is not None:
        raise RinglineError(f'{where} "{topic}": not a topic to publish to: {problem}')


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


def _check_filter(where: str, topic: str) -> None:
    levels = levels_of(topic)
    if not topic or not levels or topic.startswith(("$share//", "$share/+", "$share/#")):
        raise RinglineError(f'{where}.topic "{topic}": not an MQTT topic filter')
    wrong = any(len(level) > 1 and set(level) & {"+", "#"} for level in levels)
    if wrong or "#" in levels[:-1] or "\0" in topic:
        raise RinglineError(f'{where}.topic "{topic}": + must be a whole level, # the whole last level')


def _check_answer(where: str, route: Route) -> None:
    wildcards = [level for level in levels_of(route.topic) if level in ("+", "#")]
    check_topic(f"{where}.answer", route.answer)
    if set(_WILDCARD.sub("", route.answer)) & {"{", "}"}:
        raise RinglineError(f'{where}.answer "{route.answer}": braces are only for {{1}}, {{2}} …')
    for found in _WILDCARD.finditer(route.answer):
        if int(found[1]) > len(wildcards):
            raise RinglineError(
                f'{where}.answer "{route.answer}": {found[0]} needs more wildcards than "{route.topic}" has'
            )
        inside_level = found[0] not in route.answer.split("/")
        if wildcards[int(found[1]) - 1] == "#" and inside_level:
            raise RinglineError(
                f'{where}.answer "{route.answer}": {found[0]} stands for # and must be a whole level'
            )
