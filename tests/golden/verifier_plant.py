"""The verifier's engine without the plant around it: a pool, the part of context that a sequence needs, and
a record of what every sequence answered."""

from __future__ import annotations

import hashlib
import mmap
import random
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.verifier.batch import Limits, Plan, Spreading, compose
from services.verifier.engine import Engine, Failure, Outcome
from services.verifier.sequences import Sequence
from services.verifier.stops import TokenBytes, no_bytes
from shared.bus.messages.requests import GREEDY, Sampling
from shared.bus.messages.sequences import SeqOpen, SeqState
from shared.config.settings import KvFormat
from shared.native import KvPool, Model
from tests.golden.proposers import Proposer

BLOCKS = 256
WINDOW = 256
MAX_COMMIT = 64


class Plant:
    """A pool with a plane of each model, the target's first, and sequences in it.

    `order`: of the blocks, as a seed; where a block is must not matter.
    """

    def __init__(self, models: Seq[Model], kv: KvFormat = "f16", order: int = 5) -> None:
        planes = [model.plane for model in models]
        buffer = mmap.mmap(-1, KvPool.block_bytes(planes, kv) * BLOCKS)
        self.pool = KvPool(buffer, BLOCKS, planes, kv)
        self.snapshots: dict[int, SeqOpen] = {}
        self._free = list(range(BLOCKS))
        random.Random(order).shuffle(self._free)

    def open(
        self,
        seq: int,
        tokens: list[int],
        stop: tuple[int, ...],
        max_tokens: int,
        sampling: Sampling = GREEDY,
        strings: tuple[str, ...] = (),
    ) -> Sequence:
        self.snapshots[seq] = snapshot = SeqOpen(
            seq=seq,
            epoch=0,
            tokens=tokens,
            prompt_len=len(tokens),
            kv_len=0,
            draft_kv_len=0,
            blocks=[self._free.pop() for _ in range(-(-(len(tokens) + max_tokens) // 16))],
            sink=16,
            ring=WINDOW + 2 * MAX_COMMIT,
            window=WINDOW,
            max_tokens=max_tokens,
            stop_tokens=list(stop),
            stop=list(strings),
            sampling=sampling,
            severity=1,
        )
        return Sequence(snapshot, self.pool, 0, time.monotonic())


def acknowledge(sequence: Sequence) -> None:
    """Context has taken the sequence's last commit."""
    state = SeqState(
        seq=sequence.seq,
        epoch=sequence.epoch,
        kv_len=sequence.view.length,
        tokens=[],
        first_block=0,
        blocks=[],
    )
    assert sequence.confirm(state)


@dataclass
class Record:
    """What a sequence answered; `logits`: a digest of every accepted node's row, in order."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    passes: int = 0
    logits: list[bytes] = field(default_factory=list)


class Recorder(Engine):
    """The engine, keeping the logits that its choices came from."""

    def __init__(
        self, model: Model, limits: Limits, kv: KvFormat = "f16", token_bytes: TokenBytes = no_bytes
    ) -> None:
        super().__init__(model, limits, kv, token_bytes)
        self.rows: NDArray[np.float32] = np.zeros((0, 0), np.float32)

    def _forward(self, plan: Plan[Sequence]) -> list[int]:
        choices = super()._forward(plan)
        self.rows = self._scratch.logits().copy() if self._arrays.n_outputs else self.rows
        return choices

    def accepted_rows(self, plan: Plan[Sequence], outcomes: list[Outcome | Failure]) -> dict[int, list[int]]:
        """Rows of `rows` that the accepted nodes of each sequence have."""
        rows: dict[int, list[int]] = {}
        output, rest = 0, list(outcomes)
        if plan.chunk is not None:
            rest.pop(0)
            if plan.chunk.last and plan.chunk.sequence.answer_left:
                rows[plan.chunk.sequence.seq] = [0]
                output = 1
        for tree, outcome in zip(plan.trees, rest, strict=True):
            assert isinstance(outcome, Outcome)
            rows[tree.sequence.seq] = [output + node for node in outcome.verdict.path]
            output += 1 + len(tree.drafts)
        return rows


def _digest(row: NDArray[np.float32]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def run(
    engine: Recorder, limits: Limits, sequences: list[Sequence], proposer: Proposer, budget: Spreading
) -> dict[int, Record]:
    """Run until every sequence has finished."""
    records = {s.seq: Record() for s in sequences}
    while any(not s.finished for s in sequences):
        for s in sequences:
            proposer.propose(s, records[s.seq].tokens)
        plan = compose([s for s in sequences if s.runnable], limits, budget)
        outcomes = engine.run(plan)
        rows = engine.accepted_rows(plan, outcomes)
        for outcome in outcomes:
            assert isinstance(outcome, Outcome)
            record, sequence = records[outcome.sequence.seq], outcome.sequence
            record.passes += 1
            record.tokens += outcome.verdict.tokens
            record.finish = outcome.verdict.finish
            record.logits += [_digest(engine.rows[row]) for row in rows.get(sequence.seq, [])]
            sequence.advance(outcome.written, outcome.verdict, time.monotonic())
            acknowledge(sequence)
    return records
