"""Which alarm goes to which profile, and where its answer may go. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from services.gateway.payload import PayloadError
from shared.config.routes import check_routes
from shared.config.settings import Settings
from shared.config.topics import levels_of, match, substitute, topic_problem


@dataclass(frozen=True, slots=True)
class Target:
    """What a topic resolves to."""

    profile: str
    answer: str


class RouteTable:
    """The configured routes, checked once: RinglineError names the route that cannot work."""

    def __init__(self, settings: Settings) -> None:
        check_routes(settings)
        self._routes = [(levels_of(route.topic), route) for route in settings.routes]

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
