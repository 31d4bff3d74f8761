"""The bookkeeping of `shared.native.Scratch` without a model: nodes, slots, commits. Nothing is computed.

Who simulates a model derives from it and says what follows a node. K/V is not written either, so a pool that
a simulation has filled is of no use to a real model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.native import SequenceView

Ids = NDArray[np.int32]


@dataclass(slots=True)
class _Node:
    view: SequenceView
    parent: int  # slot, -1: the committed context
    token: int


class ReplayedNodes:
    """`size`, `capacity`, `forward`, `commit`, `reroot`, `drop` and `clear` as a Scratch has them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._nodes: list[_Node] = []

    @property
    def size(self) -> int:
        return len(self._nodes)

    def append(self, views: Sequence[SequenceView], seq: Ids, tokens: Ids, parents: Ids) -> int:
        """Append nodes; the first new slot. ValueError when there is no room, as a Scratch says it."""
        first = len(self._nodes)
        if first + len(tokens) > self.capacity:
            raise ValueError(f"{first + len(tokens)} nodes do not fit into {self.capacity}")
        for view, token, parent in zip(seq.tolist(), tokens.tolist(), parents.tolist(), strict=True):
            self._nodes.append(_Node(views[view], parent, token))
        return first

    def view(self, slot: int) -> SequenceView:
        return self._nodes[slot].view

    def path(self, slot: int) -> list[int]:
        """Tokens from the committed context up to and with the node."""
        tokens: list[int] = []
        while slot >= 0:
            node = self._nodes[slot]
            tokens.append(node.token)
            slot = node.parent
        return tokens[::-1]

    def commit(self, view: SequenceView, path: Ids) -> None:
        if view.length + len(path) > view.covered():
            raise ValueError(f"no block for position {view.length + len(path) - 1}")
        view.length += len(path)

    def reroot(self, view: SequenceView, path: Ids) -> Ids:
        """Keep what descends from the path's end; old slot -> new slot, -1: dropped."""
        end = int(path[-1])
        below: set[int] = {end}
        for slot, node in enumerate(self._nodes):
            if node.view is view and node.parent in below:
                below.add(slot)
        others = {slot for slot, node in enumerate(self._nodes) if node.view is not view}
        return self._compact(others | below - {end}, end)

    def drop(self, view: SequenceView) -> Ids:
        return self._compact({slot for slot, node in enumerate(self._nodes) if node.view is not view}, -1)

    def clear(self) -> None:
        self._nodes.clear()

    def _compact(self, kept: set[int], root: int) -> Ids:
        """`root`: the slot whose children hang on the committed context now."""
        table = np.full(len(self._nodes), -1, np.int32)
        table[sorted(kept)] = np.arange(len(kept), dtype=np.int32)
        nodes = [self._nodes[slot] for slot in sorted(kept)]
        for node in nodes:
            node.parent = -1 if node.parent in (root, -1) else int(table[node.parent])
        self._nodes = nodes
        return table
