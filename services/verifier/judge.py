"""How one sequence's tokens are chosen and where its answer ends, from its snapshot on.

The state is what is known; a pass judges from it and changes nothing until its tokens are `take`n, so a pass
may be judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from services.verifier.acceptance import Rule, Verdict, accept_ratio, walk
from services.verifier.stops import StopStrings, TokenBytes
from shared.bus.messages.sequences import SeqOpen
from shared.sampling import Distribution, History, Uniforms, uniform, warp
from shared.tree import Node, Selection, Try

Rows = Callable[[int], NDArray[np.float32]]  # the logits of a node, asked for when it is visited


class Judge:
    """One sequence's rule, history and ends."""

    def __init__(self, snapshot: SeqOpen) -> None:
        self._sampling = snapshot.sampling
        self._stop = frozenset(snapshot.stop_tokens)
        self._history = History(snapshot.tokens, snapshot.window, snapshot.sampling)
        self._strings = StopStrings(snapshot.stop, snapshot.tokens[snapshot.prompt_len - snapshot.first :])
        self._known = snapshot.first + len(snapshot.tokens)

    @property
    def greedy(self) -> bool:
        """The choices are the largest logits: no row is needed."""
        return self._sampling.plain

    def take(self, tokens: list[int]) -> None:
        """They are known now."""
        self._known += len(tokens)
        self._history.extend(tokens)
        self._strings.take(tokens)

    def judge(
        self,
        drafts: Selection,
        root: Node,
        choices: Sequence[int],
        rows: Rows,
        token_bytes: TokenBytes,
        room: int,
    ) -> Verdict:
        """The verdict on a root and its drafts, nodes 0 and 1 … of a pass. `room`: answer tokens left, ≥ 1.

        `root` is the trie's that the drafts were selected from. `choices` are the nodes' largest logits, used
        when `greedy`; `rows` are used otherwise.
        """
        tokens = [-1, *drafts.tokens]
        parents = [-1, *(parent + 1 for parent in drafts.parents)]
        rule = self._rule(drafts, root, choices, rows)
        return walk(tokens, parents, rule, self._strings.ends(self._stop, token_bytes), room)

    def _rule(self, drafts: Selection, root: Node, choices: Sequence[int], rows: Rows) -> Rule:
        if self.greedy:
            return lambda node, _: choices[node]
        if self._sampling.acceptance == "match":
            return lambda node, said: self._match(rows(node), said)
        tries = Tries(drafts, root)
        return lambda node, said: self._ratio(rows(node), said, tries.of(node))

    def _target(self, row: NDArray[np.float32], said: list[int]) -> Distribution:
        """p behind the path `said`, exactly as plain decoding has it there."""
        return warp(row, self._history.behind(said), self._sampling)

    def _match(self, row: NDArray[np.float32], said: list[int]) -> int:
        return self._target(row, said).draw(uniform(self._sampling.seed, self._known + len(said)))

    def _ratio(self, row: NDArray[np.float32], said: list[int], tries: list[Try]) -> int:
        return accept_ratio(
            self._target(row, said), tries, Uniforms(self._sampling.seed, self._known + len(said))
        )


class Tries:
    """The children of each node of a pass, in the order in which `ratio` tries them: what was drawn, as it
    was drawn, then what was proposed."""

    def __init__(self, drafts: Selection, root: Node) -> None:
        self._nodes = [root, *drafts.nodes]
        self._children: list[list[Node]] = [[] for _ in self._nodes]
        for node, parent in zip(drafts.nodes, drafts.parents, strict=True):
            self._children[parent + 1].append(node)

    def of(self, index: int) -> list[Try]:
        children = self._children[index]
        drawn = dict(self._nodes[index].draws())
        selected = {child.token for child in children}
        tries = [(token, q) for token, q in drawn.items() if token in selected]
        return tries + [(child.token, None) for child in children if child.token not in drawn]
