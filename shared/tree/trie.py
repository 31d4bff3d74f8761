"""Token trie of one sequence: what the drafters think comes next, rooted at the last known token.

    tokens[0 .. base)  ── root = tokens[base-1] ──┬── 17 ──┬── 4
                                                  │        └── 9 ── 2
                                                  └── 23

Every node carries the natural log of the probability its drafter gave it (`logq` ≤ 0), its source, and who
else proposed it. A node's *score* is the sum of `logq` from the root (or of what it is weighed with instead):
the log of the probability that the whole path is right. A child never scores above its parent, so the best n
nodes always form a tree that contains the root.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import takewhile
from typing import TypeAlias

from shared.tree.draws import Drawings, Drawn, Draws, Try

LOWEST_LOGQ = -1e4  # stands for "probability zero"; sums of it stay finite and ordered
_ROOM = 0.75  # of its capacity is kept when a trie is full: the next proposals find room


class Node:
    """One drafted token. `votes`: bit s: source s proposed it. `tag` is the trie owner's (-1 at first).

    `drawn`: which of its children were sampled, and from what. `proposed`: it was not only drawn.
    """

    __slots__ = ("children", "drawn", "logq", "proposed", "source", "tag", "token", "votes")

    def __init__(self, token: int, source: int, logq: float) -> None:
        self.token = token
        self.source = source
        self.logq = logq
        self.votes = 1 << source if source >= 0 else 0
        self.tag = -1
        self.children: dict[int, Node] = {}
        self.drawn: Drawn | None = None
        self.proposed = False

    def draws(self) -> list[Try]:
        """Tokens of children that were drawn and not proposed, in the order of drawing, each with its q."""
        if self.drawn is None:
            return []
        return self.drawn.conditional({token for token, child in self.children.items() if child.proposed})


Weigh: TypeAlias = Callable[[Node, int], float]
"""log of the probability that a node at a depth (1: the root's children) is right if its parent is."""


@dataclass(slots=True)
class Selection:
    """Nodes of a trie in descending score, parents first. `parents[i]` is an index, -1 for the root."""

    nodes: list[Node] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def tokens(self) -> list[int]:
        return [node.token for node in self.nodes]

    def first(self, n: int) -> Selection:
        """The n best of them."""
        return Selection(self.nodes[:n], self.parents[:n], self.scores[:n])

    def path(self, index: int) -> tuple[int, ...]:
        """Tokens from the root's child to the node at `index`."""
        tokens: list[int] = []
        while index >= 0:
            tokens.append(self.nodes[index].token)
            index = self.parents[index]
        return tuple(reversed(tokens))

    def leaves(self) -> list[int]:
        """Indices of the nodes that have no child in the selection."""
        inner = set(self.parents)
        return [i for i in range(len(self.nodes)) if i not in inner]


class TokenTrie:
    """A bounded trie that follows `base` known tokens.

    `capacity`: nodes kept at most, the best by score. `memory`: how many accepted tokens are remembered, that
    is how old a proposal may be and still be used.
    """

    def __init__(self, base: int, capacity: int = 512, memory: int = 256) -> None:
        self.base = base
        self.capacity = capacity
        self.root = Node(-1, -1, 0.0)
        self.size = 0
        self._recent: deque[int] = deque(maxlen=memory)

    def insert_path(self, base: int, tokens: Sequence[int], source: int, logq: Sequence[float]) -> int:
        """Insert a chain; see `insert`."""
        n = len(tokens)
        return self.insert(base, tokens, range(-1, n - 1), [source] * n, logq)

    def insert(
        self,
        base: int,
        tokens: Sequence[int],
        parents: Sequence[int],
        sources: Sequence[int],
        logq: Sequence[float],
        draws: Sequence[Draws] = (),
    ) -> int:
        """Merge a tree that follows `base` tokens; how many of its nodes fit (0: stale or ahead).

        A tree with an older base is walked along the tokens accepted since: what continues them is merged,
        the rest is dropped. A node that is already there keeps the larger `logq` and the source that gave
        it. `draws` says which nodes were sampled; what contradicts the draws that a node has is dropped.
        ValueError when the lists disagree or a parent does not come before its child.
        """
        _check_tree(len(tokens), parents, len(sources), len(logq))
        drawings = Drawings(tokens, parents, draws)
        passed = self._since(base)
        if passed is None:
            return 0
        # A node's place: the trie's node it is, or how many of the passed tokens its path has matched so far.
        places: list[Node | int | None] = []
        start: Node | int = 0 if passed else self.root
        fitting = 0
        for i, token in enumerate(tokens):
            place = start if parents[i] == -1 else places[parents[i]]
            if isinstance(place, Node):
                if not drawings.agree(i, place):
                    places.append(None)
                    continue
                places.append(self._child(place, token, sources[i], logq[i], drawings.holds(i)))
                fitting += 1
            else:
                places.append(self._walk(place, token, passed))
        if self.size > self.capacity:
            self._keep(self.best(max(1, int(_ROOM * self.capacity))))
        return fitting

    def best(
        self,
        n: int,
        max_depth: int = 1 << 30,
        min_score: float = -math.inf,
        weigh: Weigh | None = None,
    ) -> Selection:
        """The n best-scoring nodes of at most `max_depth` levels that score at least `min_score`."""
        chosen = Selection()
        nodes, parents, scores = chosen.nodes, chosen.parents, chosen.scores
        heap: list[tuple[float, int, int, int, Node]] = []  # -score, order, depth, parent's index, node
        node, score, index, depth, order = self.root, 0.0, -1, 0, 0
        while True:
            if depth < max_depth:
                for child in node.children.values():
                    below = score + (child.logq if weigh is None else weigh(child, depth + 1))
                    if below >= min_score:
                        heappush(heap, (-below, order, depth + 1, index, child))
                        order += 1
            if not heap or len(nodes) >= n:
                return chosen
            negative, _, depth, parent, node = heappop(heap)
            score, index = -negative, len(nodes)
            nodes.append(node)
            parents.append(parent)
            scores.append(score)

    def advance(self, tokens: Sequence[int]) -> list[Node]:
        """Follow accepted tokens: re-root behind them, keep what survives. Returns the nodes walked."""
        walked: list[Node] = []
        node: Node | None = self.root
        for token in tokens:
            node = node.children.get(token) if node is not None else None
            if node is not None:
                walked.append(node)
        if tokens:
            self.base += len(tokens)
            self._recent.extend(tokens)
            self.root = Node(-1, -1, 0.0)
            if node is not None:
                self.root.children, self.root.drawn = node.children, node.drawn
            self.size = sum(1 for _ in self.nodes())
        return walked

    def rest(self, base: int, path: Sequence[int]) -> list[int] | None:
        """What is left of a path that followed `base` tokens; None: another one was taken, or it is stale."""
        passed = self._since(base)
        n = len(passed) if passed is not None else 0
        return None if passed is None or list(path[:n]) != passed else list(path[n:])

    def refuted_by(self, tokens: Sequence[int]) -> bool:
        """Whether somewhere along these tokens the likeliest child was another one."""
        node: Node | None = self.root
        for token in tokens:
            if node is None or not node.children:
                return False
            if max(node.children.values(), key=lambda child: child.logq).token != token:
                return True
            node = node.children.get(token)
        return False

    def add_children(
        self,
        parent: Node,
        tokens: Sequence[int],
        source: int,
        logq: Sequence[float],
        drawn: Drawn | None = None,
    ) -> None:
        """Merge tokens that follow a node of this trie (or its root); `drawn`: they are its draws."""
        if drawn is not None:
            if parent.drawn is not None:
                return
            parent.drawn = drawn
        for token, value in zip(tokens, logq, strict=True):
            self._child(parent, token, source, value, drawn is not None)

    def draws(self, chosen: Selection) -> list[tuple[int, list[int], Drawn]]:
        """Which of the chosen nodes were drawn: index of the node drawn at (-1: the root), indices of what
        was drawn there, from the first draw on and without a gap, and the drawing.

        Where tokens were proposed beside the draws, everything counts as proposed.
        """
        nodes = enumerate(zip(chosen.nodes, chosen.parents, strict=True))
        places = {(parent, node.token): i for i, (node, parent) in nodes}
        found: list[tuple[int, list[int], Drawn]] = []
        for index, node in enumerate([self.root, *chosen.nodes], start=-1):
            if node.drawn is None or any(child.proposed for child in node.children.values()):
                continue
            wanted = [(index, token) for token in node.drawn.tokens]
            children = [places[place] for place in takewhile(places.__contains__, wanted)]
            if children:
                found.append((index, children, node.drawn))
        return found

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        stack = [self.root]
        while stack:
            children = stack.pop().children.values()
            yield from children
            stack.extend(children)

    def _since(self, base: int) -> list[int] | None:
        """Tokens accepted after the first `base`; None when they are unknown."""
        passed = self.base - base
        if passed < 0 or passed > len(self._recent):
            return None
        return list(self._recent)[len(self._recent) - passed :]

    def _walk(self, matched: int | None, token: int, passed: list[int]) -> Node | int | None:
        if matched is None or token != passed[matched]:
            return None
        return self.root if matched + 1 == len(passed) else matched + 1

    def _child(self, parent: Node, token: int, source: int, logq: float, drawn: bool = False) -> Node:
        logq = min(max(logq, LOWEST_LOGQ), 0.0) if logq == logq else LOWEST_LOGQ
        child = parent.children.get(token)
        if child is None:
            child = parent.children[token] = Node(token, source, logq)
            self.size += 1
        else:
            child.votes |= 1 << source
            if logq > child.logq:
                child.logq, child.source = logq, source
        child.proposed = child.proposed or not drawn
        return child

    def _keep(self, chosen: Selection) -> None:
        kept = {id(node) for node in chosen.nodes}
        for node in [self.root, *chosen.nodes]:
            gone = [child for child in node.children.values() if id(child) not in kept]
            if node.drawn is not None and any(child.proposed for child in gone):
                _end_drawing(node)
            node.children = {t: child for t, child in node.children.items() if id(child) in kept}
        self.size = len(chosen.nodes)


def _end_drawing(node: Node) -> None:
    """What was proposed at this node will not be known any more: its draws count as proposed, too."""
    node.drawn = Drawn([], [], [])
    for child in node.children.values():
        child.proposed = True


def _check_tree(n: int, parents: Sequence[int], sources: int, logq: int) -> None:
    if not n == len(parents) == sources == logq:
        raise ValueError(f"a tree of {n} tokens has {len(parents)} parents, {sources} sources, {logq} logq")
    for i, parent in enumerate(parents):
        if not -1 <= parent < i:
            raise ValueError(f"node {i} of a tree has parent {parent}: parents come before children")
