"""Names of streams: what a route's template can become, and that a stream belongs to one profile. Pure.

A stream begins with its profile's prefix, so two profiles cannot share one: two routes of different profiles
whose templates can give the same name are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

from shared.config.errors import RinglineError
from shared.config.quote import quoted
from shared.config.settings import Route
from shared.config.topics import WILDCARD, levels_of, places_problem, wildcards_of

MAX_NAME = 128  # characters


def check_streams(routes: Sequence[Route]) -> list[tuple[str, list[str]]]:
    """Profile and shape of each route's stream; RinglineError that names the route whose stream cannot be."""
    shapes: list[tuple[int, Route, list[str]]] = []
    for index, route in enumerate(routes):
        if route.stream:
            shapes.append((index, route, _shape(f"routes[{index}].stream", route)))
    for (first, one, shape), (second, other, other_shape) in combinations(shapes, 2):
        if one.profile != other.profile and names_meet(shape, other_shape):
            raise RinglineError(
                f"routes[{first}].stream {quoted(one.stream)} and routes[{second}].stream "
                f"{quoted(other.stream)} can be the same stream, but their profiles are "
                f"{quoted(one.profile)} and {quoted(other.profile)}: use one profile, or put something of "
                "the route into the names"
            )
    return [(route.profile, shape) for _, route, shape in shapes]


def _shape(where: str, route: Route) -> list[str]:
    """The template as single characters, with the wildcards `+` and `#` as two-character items."""
    problem = places_problem(route.stream, route.topic)
    if problem is not None:
        raise RinglineError(f"{where} {quoted(route.stream)}: {problem}")
    wildcards = wildcards_of(levels_of(route.topic))
    shape: list[str] = []
    end = 0
    for found in WILDCARD.finditer(route.stream):
        shape += [*route.stream[end : found.start()], "*" + wildcards[int(found[1]) - 1]]
        end = found.end()
    shape += route.stream[end:]
    if "\0" in shape or len(shape) > MAX_NAME:
        raise RinglineError(
            f"{where} {quoted(route.stream)}: a stream's name has at most {MAX_NAME} characters, and no zeros"
        )
    return shape


def names_meet(one: list[str], other: list[str]) -> bool:
    """Whether some name fits both shapes."""

    @cache
    def meet(i: int, j: int) -> bool:
        if i == len(one) or j == len(other):
            return all(len(item) == 2 for item in one[i:] + other[j:])
        a, b = one[i], other[j]
        if len(a) == 2:
            return meet(i + 1, j) or (_takes(a, b) and meet(i, j + 1))
        if len(b) == 2:
            return meet(i, j + 1) or (_takes(b, a) and meet(i + 1, j))
        return a == b and meet(i + 1, j + 1)

    return meet(0, 0)


def _takes(wildcard: str, item: str) -> bool:
    """Whether the wildcard can stand for `item`, too; `+` ends at a slash."""
    return wildcard == "*#" or item != "/"
