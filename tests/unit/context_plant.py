"""A small context without sockets: real files, real allocator, messages collected in lists."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from services.context.app import build, describe
from services.context.models import Pair
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Role
from shared.bus.messages.requests import RegisterProfile, Submit
from shared.bus.messages.sequences import Commit, SeqOpen, SeqState
from shared.config.settings import Settings
from shared.kv import Segment, open_segment
from shared.kv.locks import Writer
from shared.model.open import ModelInfo

VOCABULARY = 1000
VERIFIER: Writer = ("verifier", 4711)
PLANE = (1, 1, 32)
M = TypeVar("M", bound=Message)


def model_info(
    name: str = "target", vocabulary: str = "v1", plane: tuple[int, int, int] = PLANE
) -> ModelInfo:
    spec = {"n_vocab": VOCABULARY}
    return ModelInfo(
        name=name,
        sha256=f"sha-{name}",
        vocabulary_hash=vocabulary,
        spec=spec,  # type: ignore[arg-type]
        plane=plane,
        stop_tokens=(0,),
        chat_template="",
        context_length=4096,
    )


def settings_for(**sections: object) -> Settings:
    base: dict[str, object] = {
        "context": {"pool_mb": 1, "max_sequences": 3, "max_waiting": 4},
        "verifier": {"prefill_chunk": 16, "node_budget": 3},
        "models": {"draft": None},
    }
    return Settings.model_validate({**base, **sections})


class Plant:
    """Sessions over a segment in `directory`. `sent[role]` collects what goes to a joined role."""

    def __init__(
        self,
        directory: Path | None = None,
        blocks: int = 64,
        record_tokens: int | None = None,
        **sections: object,
    ) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="rl-"))
        self.settings = settings_for(**sections)
        pair = Pair(model_info(), None, "")
        spec, self.limits = describe(self.settings, pair)
        changes = {"n_blocks": blocks}
        if record_tokens is not None:
            record = replace(self.limits.record, tokens=record_tokens)
            self.limits = replace(self.limits, record=record)
            changes |= {"record_tokens": record_tokens, "record_bytes": record.total_bytes}
        self.segment: Segment = open_segment(self.directory, spec.model_copy(update=changes))
        self.now = 100.0
        self.joined: set[Role] = {"verifier", "gateway"}
        self.sent: dict[Role, list[Message]] = {"verifier": [], "draft": [], "gateway": []}
        self.start()

    def start(self) -> None:
        self.sessions, self.writers = build(self.segment, self.limits, self._send, lambda: self.now)
        self.ledger = self.sessions.ledger

    def crash(self) -> None:
        """What a new process finds after kill -9: the same memory, no objects."""
        self.segment.recovered = True
        for messages in self.sent.values():
            messages.clear()
        self.start()

    def close(self) -> None:
        self.segment.close()
        self.directory.rmdir()

    def take(self, role: Role, kind: type[M]) -> list[M]:
        """Messages of that kind for that role so far; all of the role's messages are forgotten."""
        found = [message for message in self.sent[role] if isinstance(message, kind)]
        self.sent[role].clear()
        return found

    def profile(self, name: str = "p", sink: int = 20, window: int = 64) -> list[int]:
        """A registered profile whose prefix is computed; returns its tokens."""
        prefix = [900 + i % 90 for i in range(sink)]
        self.sessions.register(RegisterProfile(profile=name, tokens=prefix, window=window))
        for opened in self.take("verifier", SeqOpen):
            compute_prefix(self, opened)
        return prefix

    def _send(self, role: Role, message: Message) -> None:
        if role in self.joined:
            self.sent[role].append(message)


def compute_prefix(plant: Plant, opened: SeqOpen) -> None:
    for start in range(opened.kv_len, len(opened.tokens), 16):
        written = min(16, len(opened.tokens) - start)
        commit = Commit(seq=opened.seq, epoch=start // 16, kv_len=start, written=written, tokens=[])
        plant.sessions.commit(commit)


def submit(prefix: list[int], name: str = "r1", *, prompt: int = 5, **fields: object) -> Submit:
    """A request of `prompt` tokens behind the prefix."""
    tokens = prefix + [10 + i % 800 for i in range(prompt)]
    values = {"profile": "p", "tokens": tokens, "max_tokens": 8, "stop_tokens": [0], **fields}
    return Submit.model_validate({"request_id": name, **values})


class Decoder:
    """Answers one sequence the way a verifier does: the prompt first, then `step` tokens a commit."""

    def __init__(self, plant: Plant, opened: SeqOpen) -> None:
        self.plant = plant
        self.seq, self.epoch, self.kv_len, self.n = (
            opened.seq,
            opened.epoch,
            opened.kv_len,
            opened.first + len(opened.tokens),
        )

    def commit(self, *tokens: int, finish: str | None = None) -> Commit:
        written = self.n - self.kv_len + max(0, len(tokens) - 1)
        message = Commit.model_validate(
            {
                "seq": self.seq,
                "epoch": self.epoch,
                "kv_len": self.kv_len,
                "written": written,
                "tokens": list(tokens),
                "finish": finish,
            }
        )
        self.plant.sessions.commit(message)
        self.epoch, self.kv_len, self.n = self.epoch + 1, self.kv_len + written, self.n + len(tokens)
        return message


def states(messages: list[Message]) -> list[SeqState]:
    return [message for message in messages if isinstance(message, SeqState)]


def start(plant: Plant, name: str = "r1", **fields: Any) -> Decoder:
    """A request that has been admitted; the profile is registered when it is not yet."""
    known = plant.sessions.profiles.get("p")
    prefix = known.tokens if known else plant.profile()
    plant.sent["verifier"].clear()
    plant.sessions.submit(submit(prefix, name, **fields))
    return Decoder(plant, plant.take("verifier", SeqOpen)[-1])
