"""What the drafts of all sequences share: the plant's history, its lexicon, and how good they are here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from services.draft.history import REQUEST_TOKENS, History
from services.draft.history_file import HistoryFile
from services.draft.lexicon import Lexicon
from shared.bus.messages.sequences import SeqOpen, Source
from shared.config.errors import RinglineError
from shared.config.settings import Settings
from shared.lexicon import read_lexicon
from shared.model.open import ModelInfo, read_info, return_free_memory
from shared.native import ContextIndex

# Of the evidence in shared/native/core/text_draft.hpp, as bench.evidence fits them.
WEIGHTS = (-0.72, 1.59, 0.91, 0.08, 0.19, 0.45, 0.29, -1.03, 0.42, 0.70, 0.18, 1.29)
QUERY_TOKENS = 32  # of a sequence's end are compared with texts
LEARNING_RATE = 0.01  # for each token that was drafted for
_REACH = 4.0  # how far a weight may move from where it began
_MOOD = 0.5  # to begin with
_MOOD_RATE = 0.02

TextSource: TypeAlias = tuple[ContextIndex, NDArray[np.float32], int]  # with kinship and source

_log = structlog.get_logger()


class Plant:
    """`weights`: float32 [EVIDENCE], learnt as it goes. `mood`: share of right drafts lately, 0 to 1."""

    def __init__(self, history: History | None = None, lexicon: Lexicon | None = None) -> None:
        self.history = history
        self.lexicon = lexicon
        self._first = np.array(WEIGHTS, np.float32)
        self.weights = self._first.copy()
        self.mood = _MOOD

    def learned(self, right: Sequence[bool]) -> None:
        """Weights have moved; `right`: for each token, whether the likeliest draft was right."""
        for hit in right:
            self.mood += _MOOD_RATE * (hit - self.mood)
        np.clip(self.weights, self._first - _REACH, self._first + _REACH, out=self.weights)


class Relatives:
    """The plant's texts as one sequence sees them: how alike the request of each document is to its own."""

    def __init__(self, request: Sequence[int], plant: Plant) -> None:
        self._plant = plant
        self._request = np.array(request, np.int32)
        self._kinship = np.zeros(0, np.float32)
        self._version = -1

    def sources(self) -> list[TextSource]:
        """History and lexicon, as the native code takes them."""
        sources: list[TextSource] = []
        history, lexicon = self._plant.history, self._plant.lexicon
        if history is not None:
            if history.version != self._version:
                self._version = history.version
                self._kinship = history.kinship(self._request)
            sources.append((history.index, self._kinship, Source.HISTORY))
        if lexicon is not None:
            sources.append((lexicon.index, lexicon.kinship, Source.LEXICON))
        return sources


def request_of(snapshot: SeqOpen) -> list[int]:
    """The end of the prompt, without the profile in front of it."""
    prompt = max(snapshot.prompt_len - snapshot.first, 0)
    begin = max(prompt - REQUEST_TOKENS, min(snapshot.sink - snapshot.first, prompt), 0)
    return snapshot.tokens[begin:prompt]


def open_plant(settings: Settings) -> tuple[Plant | None, HistoryFile | None]:
    """What retrieval drafts from, and the file that keeps the history; None for what is not configured.

    A history or a lexicon that cannot be used is one line in the log: the other sources go on.
    """
    if "retrieval" not in settings.draft.sources:
        return None, None
    target = _target(settings)
    if target is None:
        return Plant(), None
    history, file = _history(settings, target)
    plant = Plant(history, _lexicon(settings, target))
    return_free_memory()
    return plant, file


def _target(settings: Settings) -> ModelInfo | None:
    """None also when nothing needs it."""
    if settings.draft.history_tokens == 0 and settings.draft.lexicon is None:
        return None
    try:
        return read_info(settings.models.target, settings.paths)
    except RinglineError as error:
        _log.error(f"drafts know no earlier answers and no lexicon: {error}")
        return None


def _history(settings: Settings, target: ModelInfo) -> tuple[History | None, HistoryFile | None]:
    tokens = settings.draft.history_tokens
    if tokens == 0:
        return None, None
    # One for each vocabulary: who tries another model finds the old history when he goes back.
    name = f"history-{target.vocabulary_hash[:8]}.bin"
    file = HistoryFile(settings.paths.data / "draft" / name, target.vocabulary_hash, tokens)
    answers = file.load()
    _log.info("history", answers=len(answers))
    return History(tokens, answers, file.keep), file


def _lexicon(settings: Settings, target: ModelInfo) -> Lexicon | None:
    path = settings.draft.lexicon
    if path is None:
        return None
    try:
        lexicon = Lexicon(read_lexicon(path, target.vocabulary_hash, target.spec["n_vocab"]))
    except RinglineError as error:
        _log.error(f"the lexicon is not used: {error}. Other sources go on")
        return None
    _log.info("lexicon", passages=lexicon.index.documents, tokens=lexicon.index.end)
    return lexicon
