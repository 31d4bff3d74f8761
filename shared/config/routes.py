"""Whether the configured routes can work: asked by `ringline check`, and by the gateway at its start."""

from __future__ import annotations

from shared.config.errors import RinglineError
from shared.config.quote import quoted
from shared.config.settings import Route, Settings
from shared.config.stream_names import check_streams
from shared.config.topics import (
    MAX_SLASHES,
    MAX_TOPIC_BYTES,
    STREAM,
    WILDCARD,
    answer_pattern,
    levels_of,
    overlap,
    places_problem,
    topic_problem,
    wildcards_of,
)

_SHOWN = 200  # characters of a topic


def check_routes(settings: Settings) -> None:
    """RinglineError names the first route that cannot work, or whose answers would come back."""
    if not settings.routes:
        raise RinglineError("no [[routes]] configured: add one with topic, profile and answer or stream")
    for index, route in enumerate(settings.routes):
        _check_filter(f"routes[{index}].topic", route.topic)
        if route.answer or not route.stream:
            _check_answer(f"routes[{index}].answer", route)
    check_streams(settings.routes)
    _check_topic("gateway.dead_letter_topic", settings.gateway.dead_letter_topic)
    _refuse_loops(settings)


def _check_filter(where: str, topic: str) -> None:
    levels = levels_of(topic)
    if not topic or not levels or topic.startswith(("$share//", "$share/+", "$share/#")):
        raise RinglineError(f"{where} {quoted(topic, _SHOWN)}: not an MQTT topic filter")
    wrong = any(len(level) > 1 and set(level) & {"+", "#"} for level in levels)
    if wrong or "#" in levels[:-1]:
        raise RinglineError(
            f"{where} {quoted(topic, _SHOWN)}: + must be a whole level, # the whole last level"
        )
    if "\0" in topic or len(topic.encode(errors="replace")) > MAX_TOPIC_BYTES:
        raise RinglineError(
            f"{where} {quoted(topic, _SHOWN)}: MQTT allows no NUL in it and {MAX_TOPIC_BYTES} bytes at most"
        )
    if topic.count("/") > MAX_SLASHES:
        raise RinglineError(f"{where} {quoted(topic, _SHOWN)}: it has more than {MAX_SLASHES} slashes")


def _check_topic(where: str, topic: str) -> None:
    problem = topic_problem(topic)
    if problem is not None:
        raise RinglineError(f"{where} {quoted(topic, _SHOWN)}: not a topic to publish to: {problem}")


def _check_answer(where: str, route: Route) -> None:
    wildcards = wildcards_of(levels_of(route.topic))
    _check_topic(where, route.answer)
    what = f"{where} {quoted(route.answer, _SHOWN)}"
    problem = places_problem(route.answer, route.topic)
    if problem is not None:
        raise RinglineError(f"{what}: {problem}")
    for found in WILDCARD.finditer(route.answer):
        if wildcards[int(found[1]) - 1] == "#" and found[0] not in route.answer.split("/"):
            raise RinglineError(f"{what}: {found[0]} stands for # and must be a whole level")


def _refuse_loops(settings: Settings) -> None:
    for name, pattern in _outputs(settings):
        for route in settings.routes:
            if overlap(pattern, levels_of(route.topic)):
                topic = quoted("/".join(pattern), _SHOWN)
                raise RinglineError(
                    f"{name} {topic} is matched by the subscribed filter {quoted(route.topic, _SHOWN)}: "
                    "every answer would come back as an alarm or a log line; choose a topic outside it"
                )


def _outputs(settings: Settings) -> list[tuple[str, list[str]]]:
    """Patterns of all that the gateway publishes, with the setting each comes from."""
    outputs = [("gateway.dead_letter_topic", settings.gateway.dead_letter_topic.split("/"))]
    for index, route in enumerate(settings.routes):
        if not route.answer:
            continue
        pattern = answer_pattern(levels_of(route.topic), route.answer)
        outputs.append((f"routes[{index}].answer", pattern))
        outputs.append((f"routes[{index}].answer + {STREAM}", [*pattern, STREAM[1:]]))
    return outputs
