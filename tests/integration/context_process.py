"""Runs as a process of its own.

`context --config FILE` is the real service but for its models' facts, which are made by hand.
`verifier --config FILE` computes nothing; it follows the protocol and answers with a function of the tokens.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from array import array
from pathlib import Path

from services.context.app import serve
from services.context.models import Pair
from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import Joined, Lost
from shared.bus.messages.joining import Hello
from shared.bus.messages.sequences import Commit, SeqClose, SeqOpen, SeqReleased, SeqState
from shared.config.load import config_hash, load_settings
from shared.config.service import run_service
from shared.config.settings import Settings
from shared.kv import Attached, attach, describe_plane
from shared.model.open import ModelInfo

VOCABULARY = 1000
PLANE = (1, 1, 32)
PAUSE_S = 0.002  # a commit's forward pass


def model_info() -> ModelInfo:
    return ModelInfo(
        name="target",
        sha256="sha-target",
        vocabulary_hash="v1",
        spec={"n_vocab": VOCABULARY},  # type: ignore[typeddict-item]
        plane=PLANE,
        stop_tokens=(0,),
        chat_template="",
        context_length=4096,
    )


def answer_token(tokens: list[int]) -> int:
    """What follows `tokens`: never 0."""
    return 1 + zlib.crc32(array("i", tokens).tobytes()) % (VOCABULARY - 1)


def verifier_hello(settings: Settings, **changes: str) -> Hello:
    fields = {
        "config_hash": config_hash(settings),
        "model_hash": "sha-target",
        "vocabulary_hash": "v1",
        "plane": describe_plane(PLANE, settings.context.kv),
        **changes,
    }
    return Hello.model_validate(
        {"role": "verifier", "incarnation": time.monotonic_ns(), "pid": os.getpid(), **fields}
    )


class Verifier:
    """Prefill in chunks, then three tokens a commit; one commit at a time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bus = BusClient(Endpoints.of(settings.paths), verifier_hello(settings))
        self.sequences: dict[int, SeqOpen] = {}
        self.pool: Attached | None = None

    def run(self) -> None:
        self.bus.start()
        while True:
            item = self.bus.receive(0.0 if self.sequences else 0.2)
            while item is not None:
                self.read(item)
                item = self.bus.receive(0.0)
            for seq in list(self.sequences):
                if seq in self.sequences:
                    self.step(self.sequences[seq])

    def read(self, item: object) -> None:
        match item:
            case Joined(welcome=welcome):
                if self.pool is None or self.pool.generation != welcome.generation:
                    self.pool = attach(
                        self.settings.paths.memory, "verifier", PLANE, self.settings.context.kv
                    )
            case Lost():
                self.sequences.clear()
            case SeqOpen():
                self.sequences[item.seq] = item
            case SeqClose():
                self.sequences.pop(item.seq, None)
                self.bus.send(SeqReleased(seq=item.seq))
            case SeqState():
                self.advance(item)

    def advance(self, state: SeqState) -> None:
        old = self.sequences.get(state.seq)
        if old is not None and state.epoch == old.epoch + 1:
            changes = {
                "epoch": state.epoch,
                "kv_len": state.kv_len,
                "tokens": old.tokens + state.tokens,
                "blocks": old.blocks[: state.first_block] + state.blocks,
            }
            self.sequences[state.seq] = old.model_copy(update=changes)

    def step(self, s: SeqOpen) -> None:
        time.sleep(PAUSE_S)
        left = len(s.tokens) - s.kv_len
        chunk = self.settings.verifier.prefill_chunk
        written, new = min(left, chunk), list[int]()
        if left <= chunk and s.max_tokens:
            new = self.answer(s)
            written = left + len(new) - 1
        commit = Commit(seq=s.seq, epoch=s.epoch, kv_len=s.kv_len, written=written, tokens=new)
        self.bus.send(commit)
        self.await_answer(s.seq)

    def answer(self, s: SeqOpen) -> list[int]:
        tokens = list(s.tokens)
        for _ in range(min(3, s.prompt_len + s.max_tokens - len(tokens))):
            tokens.append(answer_token(tokens))
        return tokens[len(s.tokens) :]

    def await_answer(self, seq: int) -> None:
        """SeqState, a snapshot, SeqClose or Lost: whichever comes, the sequence is in a known state again."""
        while True:
            item = self.bus.receive(5.0)
            if item is None:
                return
            self.read(item)
            if isinstance(item, Lost) or getattr(item, "seq", None) == seq:
                return


def main() -> None:
    role = sys.argv.pop(1)
    if role == "context":
        pair = Pair(model_info(), None, "")

        def context(settings: Settings, stop: threading.Event) -> int:
            return serve(settings, pair, stop)

        run_service("context", context)
    Verifier(load_settings(Path(sys.argv[2]))).run()


if __name__ == "__main__":
    main()
