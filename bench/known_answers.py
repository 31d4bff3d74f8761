"""Which answer a sequence of the services will have: by its prompt, among the answers known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.traces import Trace, Traced
from shared.bus.messages import SeqOpen
from shared.native import SequenceView


@dataclass(frozen=True)
class Place:
    """Where a path of tokens leads: `i` answer tokens of `item` are behind, then `path`."""

    item: Traced
    i: int
    path: tuple[int, ...]


class KnownAnswers:
    """Sequences are known by their view: a replayed model sees nothing else of them."""

    def __init__(self, trace: Trace) -> None:
        self._by_prompt = {tuple(item.prompt): item for item in trace.items}
        self._by_view: dict[int, tuple[SequenceView, Traced]] = {}

    def opened(self, snapshot: SeqOpen, view: SequenceView) -> None:
        """A sequence was opened; one whose prompt is unknown (a prefix) is not kept."""
        item = self._by_prompt.get(tuple(snapshot.tokens[: snapshot.prompt_len]))
        if item is not None:
            self._by_view[id(view)] = view, item  # the view is kept, so its id stays its own

    def place(self, view: SequenceView, tokens: Sequence[int]) -> Place | None:
        """Of tokens that follow what the view has committed; None for what lies within a prompt."""
        found = self._by_view.get(id(view))
        if found is None:
            return None
        item = found[1]
        ahead = view.length + len(tokens) - len(item.prompt)  # answer tokens at the end of `tokens`
        if ahead < 0:
            return None
        inside = max(0, view.length - len(item.prompt))
        return Place(item, inside, tuple(tokens[len(tokens) - min(ahead, len(tokens)) :]))
