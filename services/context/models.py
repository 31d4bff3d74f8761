"""The pair of models this plant runs, and what every service must agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from shared.bus.messages.joining import Hello, Refused
from shared.config.errors import RinglineError
from shared.config.settings import KvFormat, Settings
from shared.kv import describe_plane
from shared.model.open import ModelInfo

_log = structlog.get_logger()


@dataclass(frozen=True)
class Pair:
    """`draft` is None when there is no second plane; `why_no_draft` then says why."""

    target: ModelInfo
    draft: ModelInfo | None
    why_no_draft: str

    @property
    def planes(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(model.plane for model in (self.target, self.draft) if model is not None)

    @property
    def hashes(self) -> tuple[str, ...]:
        return tuple(model.sha256 for model in (self.target, self.draft) if model is not None)


def choose_pair(settings: Settings, read_info: Callable[[str], ModelInfo]) -> Pair:
    """The target must be there. A draft model that cannot be used is one warning: answers do not need it."""
    target = read_info(settings.models.target)
    name = settings.models.draft
    if name is None:
        return Pair(target, None, "models.draft is not set")
    if "cpu" not in settings.draft.sources:
        return Pair(target, None, 'draft.sources does not hold "cpu"')
    try:
        draft = read_info(name)
    except RinglineError as error:
        return _without(target, str(error))
    if draft.vocabulary_hash != target.vocabulary_hash:
        return _without(
            target,
            f"draft model {draft.name} has another vocabulary than target {target.name}: set models.draft "
            'to a model of the same family, or draft.sources = ["retrieval"]',
        )
    return Pair(target, draft, "")


def _without(target: ModelInfo, why: str) -> Pair:
    _log.warning("no draft model: answers go on without it", why=why)
    return Pair(target, None, why)


class HelloCheck:
    """Whether a service belongs to this plant: model, vocabulary, plane and configuration."""

    def __init__(self, pair: Pair, config_hash: str, kv: KvFormat) -> None:
        self._pair = pair
        self._config_hash = config_hash
        self._kv = kv

    def __call__(self, hello: Hello) -> Refused | None:
        """None: welcome. Otherwise the first field that does not match."""
        if hello.role == "status":
            return None
        hint = "start every service with the same configuration file"
        refused = _compare("config_hash", self._config_hash, hello.config_hash, hint)
        if refused is None and hello.role == "verifier":
            refused = self._check_model(self._pair.target, hello, "models.target")
        if refused is None and hello.role == "draft":
            refused = self._check_draft(hello)
        return refused

    def _check_draft(self, hello: Hello) -> Refused | None:
        """A draft without a model (retrieval only) writes no plane and needs no match."""
        if not (hello.model_hash or hello.plane):
            return None
        if self._pair.draft is None:
            got = hello.plane or hello.model_hash
            return Refused(field="plane", expected="none", got=got, hint=self._pair.why_no_draft)
        return self._check_model(self._pair.draft, hello, "models.draft")

    def _check_model(self, model: ModelInfo, hello: Hello, key: str) -> Refused | None:
        hint = f"this plant's {key} is {model.name}; restart {hello.role} and context with one configuration"
        return (
            _compare("model_hash", model.sha256, hello.model_hash, hint)
            or _compare("vocabulary_hash", model.vocabulary_hash, hello.vocabulary_hash, hint)
            or _compare("plane", describe_plane(model.plane, self._kv), hello.plane, hint)
        )


def _compare(field: str, expected: str, got: str, hint: str) -> Refused | None:
    return None if got == expected else Refused(field=field, expected=expected, got=got, hint=hint)
