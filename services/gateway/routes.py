"""Which message goes to which profile and stream, and where its answer may go. Pure.

What a route names says what its messages are:

    answer only         alarms, each answered on its own
    answer and stream   alarms, each answered on a fork of the stream
    stream only         log lines, appended to the stream
"""

from __future__ import annotations

from dataclasses import dataclass

from services.gateway.payload import PayloadError
from shared.config.routes import check_routes
from shared.config.settings import Route, Settings
from shared.config.stream_names import MAX_NAME, check_streams, names_meet
from shared.config.topics import levels_of, match, substitute, topic_problem


@dataclass(frozen=True, slots=True)
class Target:
    """What a topic resolves to."""

    profile: str
    answer: str  # "": nobody is answered, it is a log line
    stream: str = ""


class RouteTable:
    """The configured routes, checked once: RinglineError names the route that cannot work."""

    def __init__(self, settings: Settings) -> None:
        check_routes(settings)
        self._routes = [(levels_of(route.topic), route) for route in settings.routes]
        self._streams = check_streams(settings.routes)

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
                return Target(route.profile, _answer(route, captured), _stream(route, captured))
        return None


def _answer(route: Route, captured: list[str]) -> str:
    """A broker ends the connection for a wrong topic; one alarm would then hold up all others for ever."""
    if not route.answer:
        return ""
    answer = substitute(route.answer, captured)
    problem = topic_problem(answer)
    if problem is not None:
        raise PayloadError(f'its answer topic, from "{route.answer}", cannot be used: {problem}')
    return answer


def _stream(route: Route, captured: list[str]) -> str:
    stream = substitute(route.stream, captured)
    if route.stream and not 0 < len(stream) <= MAX_NAME:
        raise PayloadError(f"its stream's name has {len(stream)} characters, allowed are 1 to {MAX_NAME}")
    return stream
