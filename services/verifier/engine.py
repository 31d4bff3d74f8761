"""Runs a pass on the target model: forward, acceptance, and the accepted K/V into the pool."""

from __future__ import annotations

import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.verifier.acceptance import Verdict
from services.verifier.batch import Arrays, Chunk, Limits, Plan, Tree
from services.verifier.sequences import Sequence
from services.verifier.stops import TokenBytes, no_bytes
from shared.config.settings import KvFormat
from shared.native import Model, Scratch, SequenceView
from shared.tree import Selection

_NO_DRAFTS = Selection()
_COMPUTED = Verdict([], [], None)  # a chunk that is not the last, or of a sequence that is only computed


@dataclass(slots=True)
class Outcome:
    """What a pass did for one sequence. `accepted` are indices into `drafts`."""

    sequence: Sequence
    written: int
    verdict: Verdict
    drafts: Selection = field(default_factory=Selection)
    accepted: list[int] = field(default_factory=list)
    forward_ms: float = 0.0

    def by_source(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for i in self.accepted:
            source = self.drafts.nodes[i].source
            counts[source] = counts.get(source, 0) + 1
        return counts


@dataclass(slots=True)
class Failure:
    sequence: Sequence
    reason: str


class Engine:
    """The model with the scratch and the arrays of its passes. `kv` is the format of the pool.

    `token_bytes` is only asked by sequences with stop strings.
    """

    def __init__(
        self, model: Model, limits: Limits, kv: KvFormat = "f16", token_bytes: TokenBytes = no_bytes
    ) -> None:
        self._scratch = Scratch(model, limits.nodes, limits.outputs, kv)
        self._arrays = Arrays(limits)
        self._token_bytes = token_bytes
        self.n_vocab = model.n_vocab
        self._slots = np.arange(limits.nodes, dtype=np.int32)

    def run(self, plan: Plan[Sequence]) -> list[Outcome | Failure]:
        """One pass. When it fails, every sequence runs alone, so that only those that cannot go on fail."""
        try:
            return self._run(plan)
        except (ValueError, RuntimeError) as error:
            parts = _split(plan)
            if len(parts) == 1:
                return [Failure(_members(plan)[0], str(error))]
        return [outcome for part in parts for outcome in self.run(part)]

    def _run(self, plan: Plan[Sequence]) -> list[Outcome | Failure]:
        started = time.monotonic()
        choices = self._forward(plan)
        elapsed_ms = (time.monotonic() - started) * 1000
        outcomes: list[Outcome] = []
        slot = output = 0
        if plan.chunk is not None:
            outcomes.append(self._judge_chunk(plan.chunk, choices))
            slot, output = plan.chunk.length, int(plan.chunk.last and plan.chunk.sequence.answer_left > 0)
        paths = [self._slots[:slot]] if outcomes else []
        for tree in plan.trees:
            count = 1 + len(tree.drafts)
            outcome = self._judge_tree(tree, choices, output)
            outcomes.append(outcome)
            paths.append(self._slots[slot : slot + count][outcome.verdict.path])
            slot, output = slot + count, output + count
        for outcome in outcomes:
            outcome.forward_ms = elapsed_ms
        return [self._commit(outcome, path) for outcome, path in zip(outcomes, paths, strict=True)]

    def _forward(self, plan: Plan[Sequence]) -> list[int]:
        """The largest logit after each output node; nothing when no sequence is greedy."""
        arrays = self._arrays
        arrays.fill(plan)
        views: list[SequenceView] = [s.view for s in _members(plan)]
        self._scratch.clear()
        self._scratch.forward(views, arrays.seq, arrays.tokens, arrays.parents, arrays.outputs)
        greedy = arrays.n_outputs and any(sequence.judge.greedy for sequence in _members(plan))
        return self._scratch.argmax().tolist() if greedy else []

    def _judge_chunk(self, chunk: Chunk[Sequence], choices: Seq[int]) -> Outcome:
        sequence = chunk.sequence
        if not chunk.last or sequence.answer_left == 0:
            return Outcome(sequence, chunk.length, _COMPUTED)
        return Outcome(sequence, chunk.length, self._verdict(sequence, _NO_DRAFTS, choices, 0))

    def _judge_tree(self, tree: Tree[Sequence], choices: Seq[int], output: int) -> Outcome:
        verdict = self._verdict(tree.sequence, tree.drafts, choices, output)
        accepted = [node - 1 for node in verdict.path[1:]]
        return Outcome(tree.sequence, len(verdict.path), verdict, tree.drafts, accepted)

    def _verdict(self, sequence: Sequence, drafts: Selection, choices: Seq[int], output: int) -> Verdict:
        """On a tree whose root has the output row `output`, its drafts the rows behind it."""
        return sequence.judge.judge(
            drafts,
            sequence.trie.root,
            choices[output : output + 1 + len(drafts)],
            lambda node: self._scratch.logits()[output + node],
            self._token_bytes,
            sequence.answer_left,
        )

    def _commit(self, outcome: Outcome, path: NDArray[np.int32]) -> Outcome | Failure:
        try:
            self._scratch.commit(outcome.sequence.view, path)
        except (ValueError, RuntimeError) as error:
            return Failure(outcome.sequence, str(error))
        return outcome


def _members(plan: Plan[Sequence]) -> list[Sequence]:
    """The sequences in the order in which the arrays number them."""
    first = [plan.chunk.sequence] if plan.chunk is not None else []
    return first + [tree.sequence for tree in plan.trees]


def _split(plan: Plan[Sequence]) -> list[Plan[Sequence]]:
    chunk: list[Plan[Sequence]] = [Plan(plan.chunk)] if plan.chunk is not None else []
    return chunk + [Plan(None, [tree]) for tree in plan.trees]
