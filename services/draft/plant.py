"""What the drafts of all sequences share: the plant's history, its lexicon, and how good they are here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import structlog

from services.draft.history import History
from services.draft.history_file import HistoryFile
from services.draft.lexicon import Lexicon
from shared.config.errors import RinglineError
from shared.config.settings import Settings
from shared.lexicon import read_lexicon
from shared.model.open import ModelInfo, read_info

# Weights of the evidence (shared/native/core/text_draft.hpp), fitted to alarms and to operators' questions.
WEIGHTS = (-0.28, 2.22, 0.82, 0.03, -0.11, 0.42, 0.24, -1.27, -0.38, 0.59, 0.17, 1.01)
LEARNING_RATE = 0.02  # for each token that was drafted for
_REACH = 4.0  # how far a weight may move from where it began
_MOOD = 0.5  # to begin with
_MOOD_RATE = 0.02

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
    return Plant(history, _lexicon(settings, target)), file


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
    file = HistoryFile(settings.paths.data / "draft" / "history.bin", target.vocabulary_hash, tokens)
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
