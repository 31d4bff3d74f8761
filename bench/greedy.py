"""Greedy answers of a model, several prompts a pass, by the engine alone: no bus, no services, no drafts.

The engine's result for a token does not depend on what else is in a pass, so these are the answers that the
services give, one at a time or not, with drafts or without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bench.private_pool import private_pool
from bench.workloads import Question, Workload
from services.context.sequence import Ring
from shared.kv import blocks_of
from shared.native import BLOCK_TOKENS, Model, Scratch, SequenceView

COMPANY = 8  # answers that grow together
CHUNK = 64  # prompt tokens of a pass, and the longest commit of the services
_PREFIXES = 4  # profiles at most whose prefix is kept


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    finish: str = ""  # "stop" or "length"


@dataclass
class _Growing:
    question: Question
    view: SequenceView
    blocks: list[int]  # its own
    answer: Answer


class GreedyAnswers:
    """All answers to a workload. `said(done)` is called after each."""

    def __init__(self, model: Model, workload: Workload, said: Callable[[int], None]) -> None:
        self._workload = workload
        self._said = said
        self._scratch = Scratch(model, CHUNK, COMPANY)
        longest = max(len(q.tokens) + q.profile.max_tokens for q in workload.questions)
        blocks = (COMPANY + _PREFIXES) * (blocks_of(longest) + 1)
        self._pool = private_pool(model, blocks)
        self._free = list(range(blocks))
        self._shared: dict[str, list[int]] = {}  # full blocks of the profiles' prefixes

    def run(self) -> list[Answer]:
        """In the order of the questions."""
        waiting = list(reversed(self._workload.questions))
        answers = {question.id: Answer() for question in waiting}
        growing: list[_Growing] = []
        while waiting or growing:
            while waiting and len(growing) < COMPANY:
                question = waiting.pop()
                growing += self._open(question, answers[question.id])
            if growing:
                self._step(growing)
            for one in [one for one in growing if one.answer.finish]:
                growing.remove(one)
                self._free += one.blocks
            self._said(sum(bool(answer.finish) for answer in answers.values()))
        return [answers[question.id] for question in self._workload.questions]

    def _open(self, question: Question, answer: Answer) -> list[_Growing]:
        """The prompt computed and the first token known; nothing when the answer ends with it."""
        shared = self._prefix(question)
        needed = blocks_of(len(question.tokens) + question.profile.max_tokens) + 1 - len(shared)
        blocks = [self._free.pop() for _ in range(needed)]
        view = self._view(question, [*shared, *blocks])
        view.length = len(shared) * BLOCK_TOKENS
        self._read(view, question.tokens[view.length :])
        one = _Growing(question, view, blocks, answer)
        self._take(one, int(self._scratch.argmax()[0]))
        if answer.finish:
            self._free += blocks
            return []
        return [one]

    def _prefix(self, question: Question) -> list[int]:
        name = question.profile.name
        if name not in self._shared:
            full = len(self._workload.prefixes[name]) // BLOCK_TOKENS
            blocks = [self._free.pop() for _ in range(full)]
            self._read(self._view(question, blocks), question.tokens[: full * BLOCK_TOKENS])
            self._shared[name] = blocks
        return self._shared[name]

    def _view(self, question: Question, blocks: list[int]) -> SequenceView:
        sink = len(self._workload.prefixes[question.profile.name])
        ring = Ring.of(sink, question.profile.window, CHUNK)
        view = SequenceView(self._pool, 0, ring.sink, ring.capacity, ring.window)
        view.set_blocks(0, np.array(blocks, np.int32))
        return view

    def _read(self, view: SequenceView, tokens: list[int]) -> None:
        for at in range(0, len(tokens), CHUNK):
            chunk = np.array(tokens[at : at + CHUNK], np.int32)
            n = len(chunk)
            slots = np.arange(n, dtype=np.int32)
            self._scratch.clear()
            self._scratch.forward([view], np.zeros(n, np.int32), chunk, slots - 1, slots[n - 1 :])
            self._scratch.commit(view, slots)

    def _step(self, growing: list[_Growing]) -> None:
        n = len(growing)
        slots = np.arange(n, dtype=np.int32)
        tokens = np.array([one.answer.tokens[-1] for one in growing], np.int32)
        self._scratch.clear()
        self._scratch.forward([one.view for one in growing], slots, tokens, np.full(n, -1, np.int32), slots)
        for slot, choice in enumerate(self._scratch.argmax().tolist()):
            self._scratch.commit(growing[slot].view, slots[slot : slot + 1])
            self._take(growing[slot], choice)

    def _take(self, one: _Growing, token: int) -> None:
        if token in self._workload.stop_tokens:
            one.answer.finish = "stop"
            return
        one.answer.tokens.append(token)
        if len(one.answer.tokens) == one.question.profile.max_tokens:
            one.answer.finish = "length"
