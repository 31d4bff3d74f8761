"""Which drafted tokens the target agrees with: a walk from the root of a tree, one choice a node. Pure.

    rule      the token behind a node
    greedy    the largest logit
    match     drawn from p with the generator of its position, whatever was drafted
    ratio     a child that p accepts; none does: drawn from what p has become

The walk goes on while the token is a child. p is the target's distribution after all warpers, q the draft's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from shared.sampling import Distribution
from shared.tree import Try


@dataclass(frozen=True, slots=True)
class Verdict:
    """`path`: accepted nodes from the root on, whose K/V enters the pool. `tokens`: new known tokens.

    `len(tokens) == len(path)`, but for a stop token: it is not emitted and nothing behind it is kept, so that
    `len(tokens) == len(path) - 1`. The token that completes a stop string is emitted.
    """

    path: list[int]
    tokens: list[int]
    finish: Literal["stop", "length"] | None


class Ends(Protocol):
    """Where an answer ends. One is made for every walk."""

    def is_stop(self, token: int) -> bool:
        """Whether this token is no part of the answer and nothing follows."""

    def completes(self, token: int) -> bool:
        """Add a token of the answer; whether a stop string is complete with it."""


# (node, tokens emitted so far) -> the token behind the node
Rule: TypeAlias = Callable[[int, list[int]], int]


def walk(tokens: Sequence[int], parents: Sequence[int], rule: Rule, ends: Ends, room: int) -> Verdict:
    """Descend from the root while the rule's token is a child; one more token comes from the last node.

    Node 0 is the root (parent -1), parents come before children. `room` ≥ 1: answer tokens that may still be
    emitted.
    """
    children = {(parents[i], tokens[i]): i for i in range(len(tokens) - 1, 0, -1)}
    path, emitted, node = [0], list[int](), 0
    while True:
        token = rule(node, emitted)
        if ends.is_stop(token):
            return Verdict(path, emitted, "stop")
        emitted.append(token)
        if ends.completes(token):
            return Verdict(path, emitted, "stop")
        if len(emitted) == room:
            return Verdict(path, emitted, "length")
        following = children.get((node, token))
        if following is None:
            return Verdict(path, emitted, None)
        path.append(following)
        node = following


def accept_ratio(p: Distribution, tries: Iterable[Try], uniform: Callable[[], float]) -> int:
    """One step of speculative sampling: the token's distribution is p, whatever is tried.

    A child that was sampled from q is accepted with min(1, p/q), otherwise p becomes norm(max(0, p - q)) and
    the next one is tried (Leviathan et al. 2023, arXiv:2211.17192; several siblings: Miao et al. 2023,
    arXiv:2305.09781). A child without q was proposed for other reasons than a draw: its q is 1 at itself.
    Each q is that of its token given all that was tried before it, and given that it is in the tree.
    """
    for token, q in tries:
        share = 1.0 if q is None else q.probability(token)
        if uniform() * share < p.probability(token):
            return token
        rest = p.without([token]) if q is None else p.minus(q)
        if rest.total <= 0:  # p and q differ by rounding only
            return token
        p = rest
    return p.draw(uniform())
