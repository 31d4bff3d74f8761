"""Which answer a sequence of the services will have: by its prompt, among the answers known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.traces import Trace, Traced
from shared.bus.messages.sequences import SeqOpen
from shared.config.settings import Paths
from shared.model.open import ModelFile
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


def followed(kind: type[Any], answers: KnownAnswers) -> type[Any]:
    """A service's kind of sequence, of which `answers` is told when one is opened."""

    class Followed(kind):  # type: ignore[misc]
        def __init__(self, snapshot: SeqOpen, *arguments: Any) -> None:
            super().__init__(snapshot, *arguments)
            answers.opened(snapshot, self.view)

    return Followed


def replacing_model(
    open_model: Callable[[str, Paths], ModelFile], load: Callable[[ModelFile], Any]
) -> Callable[[str, Paths], ModelFile]:
    """`open_model` of files whose model is what `load` makes of them."""

    class ReplacedFile(ModelFile):
        def load(self, *_: object) -> Any:
            return load(self)

    def opened(name: str, paths: Paths) -> ReplacedFile:
        file = open_model(name, paths)
        return ReplacedFile(file.info, file.place, file.directory, file.report)

    return opened
