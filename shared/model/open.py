"""Opening a model by its name in the catalogue or by the path of a GGUF."""

from __future__ import annotations

import ctypes
import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.config.errors import RinglineError
from shared.config.settings import Paths
from shared.model.architecture import Spec
from shared.model.cache_file import Directory, TensorEntry
from shared.model.catalogue import find, known
from shared.model.report import Report, default_report
from shared.model.tokenizer import Tokenizer
from shared.model.weight_cache import discard_cache, ensure_cache
from shared.native import Model, digest


@dataclass(frozen=True)
class ModelInfo:
    """What a service needs to know of a model without its weights."""

    name: str
    sha256: str  # of the GGUF
    vocabulary_hash: str  # equal for models whose token ids mean the same
    spec: Spec
    plane: tuple[int, int, int]  # n_layer, n_kv_head, head_dim
    stop_tokens: tuple[int, ...]  # each of them ends an answer
    chat_template: str
    context_length: int
    phrase_ends: tuple[int, ...] = ()  # tokens that end a phrase, in either language


@dataclass(frozen=True)
class Place:
    source: Path  # the GGUF
    name: str
    sha256: str | None  # it must have, if the catalogue knows
    cache: Path  # its weight cache, which need not exist


@dataclass(frozen=True)
class ModelFile:
    """An open model: its facts, and its weight cache with the place of every tensor in it."""

    info: ModelInfo
    place: Place
    directory: Directory
    report: Report

    @property
    def path(self) -> Path:
        return self.place.cache

    @property
    def tensors(self) -> tuple[TensorEntry, ...]:
        return tuple(entry for entry, _ in self.directory.tensors)

    def load(self, threads: int, isa: str = "", affinity: Sequence[int] = ()) -> Model:
        """The weights, mapped read-only, with threads to compute.

        Every byte is compared with its digest; a damaged weight cache is packed again. RinglineError when the
        weights cannot be used.
        """
        model = self._map(threads, isa, affinity)
        damaged = self._damaged(model)
        if damaged is None:
            return model
        again = self._packed_again(damaged)
        model = again._map(threads, isa, affinity)
        if (damaged := again._damaged(model)) is not None:
            raise self._damaged_anew(damaged)
        return model

    def _packed_again(self, damaged: str) -> ModelFile:
        self.report.say(f"{self.path}: {damaged} is damaged, the weight cache is packed again")
        discard_cache(self.path, self.report)
        return _open(self.place, self.report)

    def _damaged_anew(self, damaged: str) -> RinglineError:
        return RinglineError(
            f"{self.path}: {damaged} is damaged right after packing; check the disk and the memory"
        )

    def _map(self, threads: int, isa: str, affinity: Sequence[int]) -> Model:
        try:
            return Model(str(self.path), dict(self.info.spec), self.tensors, threads, isa, affinity)
        except (ValueError, OSError) as error:
            raise RinglineError(f"{self.path}: cannot load {self.info.name}: {error}") from None

    def _damaged(self, model: Model) -> str | None:
        """Name of the first tensor that is not what was packed."""
        found = zip(self.directory.tensors, model.digests(self.tensors), strict=True)
        return next((entry[0] for (entry, packed), now in found if packed != now), None)

    def tokenizer(self) -> Tokenizer:
        """Its tokenizer; a damaged one is packed again. RinglineError when it cannot be read."""
        raw = self._tokenizer_json() or self._packed_again("the tokenizer")._tokenizer_json()
        if raw is None:
            raise self._damaged_anew("the tokenizer")
        tokenizer = Tokenizer(raw.decode(), self.info.spec["n_vocab"])
        return_free_memory()
        return tokenizer

    def _tokenizer_json(self) -> bytes | None:
        """None when it is not what was packed."""
        part = self.directory.tokenizer
        try:
            with self.path.open("rb") as file:
                file.seek(part.offset)
                raw = file.read(part.nbytes)
        except OSError as error:
            raise RinglineError(f"{self.path}: cannot read: {error.strerror}; check the disk") from None
        return raw if digest(raw) == part.digest else None


def open_model(name_or_path: str, paths: Paths, report: Report | None = None) -> ModelFile:
    """The model with its weight cache, which is packed first when there is none that fits the GGUF.

    RinglineError, one line: no such model, a GGUF that is missing, truncated, damaged or not supported, a
    catalogue model with other bytes than the catalogue says, a full disk.
    """
    return _open(locate(name_or_path, paths), report or default_report())


def _open(place: Place, report: Report) -> ModelFile:
    directory = ensure_cache(place.source, place.name, place.sha256, place.cache, report)
    return ModelFile(_info(directory), place, directory, report)


def read_info(name_or_path: str, paths: Paths) -> ModelInfo:
    """The model's facts; packs the weight cache too when it is missing."""
    return open_model(name_or_path, paths).info


def check_name(name_or_path: str) -> None:
    """RinglineError when it is neither a name of the catalogue nor the path of a GGUF."""
    if "/" not in name_or_path and not name_or_path.endswith(".gguf"):
        find(name_or_path)


def fetch_command(name: str, paths: Paths) -> str:
    """What to type to have a model of the catalogue where `paths` says."""
    option = "" if paths.data == Paths().data else f" --data {shlex.quote(str(paths.data))}"
    return f"ringline models fetch {name}{option}"


def locate(name_or_path: str, paths: Paths) -> Place:
    """Where a model and its weight cache are; RinglineError when there is no such model."""
    entry = known(name_or_path)
    if entry is not None:
        source = paths.models / entry.filename
        hint = f"run `{fetch_command(entry.name, paths)}`"
    else:
        check_name(name_or_path)
        source = Path(name_or_path).absolute()
        hint = "check the path in [models]"
    try:
        if not source.is_file():
            raise RinglineError(f"{source}: there is no such model file; {hint}")
    except OSError as error:
        raise RinglineError(f"{source}: {error.strerror}; {hint}") from None
    name = entry.name if entry else source.stem
    cache = paths.cache / f"{name}-{_tag(source)}.rlw"
    return Place(source, name, entry.sha256 if entry else None, cache)


def _tag(source: Path) -> str:
    """Tells files of the same name in different directories apart."""
    return hashlib.blake2b(str(source.resolve()).encode(), digest_size=4).hexdigest()


def _info(directory: Directory) -> ModelInfo:
    spec = directory.spec
    return ModelInfo(
        name=directory.name,
        sha256=directory.sha256,
        vocabulary_hash=directory.vocabulary_hash,
        spec=spec,
        plane=(spec["n_layer"], spec["n_kv_head"], spec["head_dim"]),
        stop_tokens=directory.stop_tokens,
        phrase_ends=directory.phrase_ends,
        chat_template=directory.chat_template,
        context_length=directory.context_length,
    )


def return_free_memory() -> None:
    """What was read to build something else, a tokenizer or an index; glibc gives it back only when asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
