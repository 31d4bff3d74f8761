"""Which message goes to which profile and stream, and where its answer may go. Pure.

A pattern level is literal text, `+` (one level) or `#` (the rest, also nothing). In an answer topic and in a
stream's name `{1}`, `{2}` … stand for what the filter's wildcards matched; everything else is literal, so an
answer cannot leave the topics that the configuration names.

    answer only         alarms, each answered on its own
    answer and stream   alarms, each answered on a fork of the stream
    stream only         log lines, appended to the stream
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from services.gateway.payload import PayloadError
from services.gateway.stream_names import MAX_NAME, check_streams, names_meet
from services.gateway.wildcards import PLACE, check_places, levels_of, wildcards_of
from shared.config.errors import RinglineError
from shared.config.settings import Route, Settings

STREAM = "/stream"
MAX_TOPIC_BYTES = 65_535


@dataclass(frozen=True, slots=True)
class Target:
    """What a topic resolves to."""

    profile: str
    answer: str  # "": nobody is answered, it is a log line
    stream: str = ""


class RouteTable:
    """The configured routes, checked once: RinglineError names the route that cannot work."""

    def __init__(self, settings: Settings) -> None:
        if not settings.routes:
            raise RinglineError("no [[routes]] configured: add one with topic, profile and answer or stream")
        self._routes = [(levels_of(route.topic), route) for route in settings.routes]
        for index, route in enumerate(settings.routes):
            where = f"routes[{index}]"
            _check_filter(where, route.topic)
            if route.answer or not route.stream:
                _check_answer(where, route)
        self._streams = check_streams(settings.routes)
        check_topic("gateway.dead_letter_topic", settings.gateway.dead_letter_topic)
        self._refuse_loops(settings)

    @property
    def filters(self) -> list[str]:
        """What to subscribe to, each once."""
        return list(dict.fromkeys(route.topic for _, route in self._routes))

    def leads_to(self, stream: str, profile: str) -> bool:
        """Whether a route of that profile can lead to the stream."""
        return any(name == profile and names_meet(shape, list(stream)) for name, shape in self._streams)

    def resolve(self, topic: str) -> Target | None:
        """What the first route that matches says. PayloadError: a topic or name that cannot be used."""
        for levels, route in self._routes:
            captured = match(levels, topic)
            if captured is not None:
                return _target(route, captured)
        return None

    def _refuse_loops(self, settings: Settings) -> None:
        outputs = [("gateway.dead_letter_topic", settings.gateway.dead_letter_topic.split("/"))]
        for index, (levels, route) in enumerate(self._routes):
            if not route.answer:
                continue
            pattern = _answer_pattern(levels, route.answer)
            outputs.append((f"routes[{index}].answer", pattern))
            outputs.append((f"routes[{index}].answer + {STREAM}", [*pattern, STREAM[1:]]))
        for name, pattern in outputs:
            for levels, route in self._routes:
                if overlap(pattern, levels):
                    raise RinglineError(
                        f'{name} "{"/".join(pattern)}" is matched by the subscribed filter "{route.topic}": '
                        "every answer would come back as an alarm or a log line; choose a topic outside it"
                    )


def _target(route: Route, captured: list[str]) -> Target:
    answer, stream = substitute(route.answer, captured), substitute(route.stream, captured)
    if len((answer + STREAM).encode()) > MAX_TOPIC_BYTES:
        raise PayloadError("its answer topic would be longer than MQTT allows")
    if route.stream and not 0 < len(stream) <= MAX_NAME:
        raise PayloadError(f"its stream's name has {len(stream)} characters, allowed are 1 to {MAX_NAME}")
    return Target(route.profile, answer, stream)


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


def substitute(template: str, captured: list[str]) -> str:
    """`template` with its `{n}` replaced, in one pass: what is put in is never looked at again."""
    return PLACE.sub(lambda found: captured[int(found[1]) - 1], template)


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
    wildcards = wildcards_of(levels)
    pattern = []
    for level in answer.split("/"):
        whole = PLACE.fullmatch(level)
        pattern.append(wildcards[int(whole[1]) - 1] if whole else level)
    return pattern


def check_topic(where: str, topic: str) -> None:
    """RinglineError unless `topic` is one that can be published to."""
    if not topic or topic.startswith("$") or set(topic) & {"+", "#", "\0"}:
        raise RinglineError(
            f'{where} "{topic}": not a topic to publish to (empty, or with +, # or a leading $)'
        )
    if len(topic.encode()) > MAX_TOPIC_BYTES - len(STREAM):
        raise RinglineError(f"{where}: longer than MQTT allows")


def _check_filter(where: str, topic: str) -> None:
    levels = levels_of(topic)
    if not topic or not levels or topic.startswith(("$share//", "$share/+", "$share/#")):
        raise RinglineError(f'{where}.topic "{topic}": not an MQTT topic filter')
    wrong = any(len(level) > 1 and set(level) & {"+", "#"} for level in levels)
    if wrong or "#" in levels[:-1] or "\0" in topic:
        raise RinglineError(f'{where}.topic "{topic}": + must be a whole level, # the whole last level')


def _check_answer(where: str, route: Route) -> None:
    check_topic(f"{where}.answer", route.answer)
    wildcards = check_places(f"{where}.answer", route.answer, route.topic)
    for found in PLACE.finditer(route.answer):
        inside_level = found[0] not in route.answer.split("/")
        if wildcards[int(found[1]) - 1] == "#" and inside_level:
            raise RinglineError(
                f'{where}.answer "{route.answer}": {found[0]} stands for # and must be a whole level'
            )
