"""Which drafted tokens the target agrees with. Greedy: the target's choice is the largest logit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Verdict:
    """`path`: accepted nodes from the root on, whose K/V enters the pool. `tokens`: new known tokens.

    `len(tokens) == len(path)`, but for a stop: the stop token is not emitted and nothing behind it is kept,
    so that `len(tokens) == len(path) - 1`.
    """

    path: list[int]
    tokens: list[int]
    finish: Literal["stop", "length"] | None


def accept_greedy(
    tokens: Sequence[int],
    parents: Sequence[int],
    choices: Sequence[int],
    stop: frozenset[int],
    room: int,
) -> Verdict:
    """Descend from the root while the target's choice is a child; one more token comes from the last node.

    Node 0 is the root (parent -1), parents come before children. `choices[i]` is the target's token after
    node i. `room` ≥ 1: answer tokens that may still be emitted.
    """
    children = {(parents[i], tokens[i]): i for i in range(len(tokens) - 1, 0, -1)}
    path, emitted, node = [0], list[int](), 0
    while True:
        choice = choices[node]
        if choice in stop:
            return Verdict(path, emitted, "stop")
        emitted.append(choice)
        if len(emitted) == room:
            return Verdict(path, emitted, "length")
        following = children.get((node, choice))
        if following is None:
            return Verdict(path, emitted, None)
        path.append(following)
        node = following
