"""llama.cpp beside the plants of `bench.speculation`: the same questions, its modes in turns."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import speculation_figures as figures
from bench.command import Report
from bench.peer import PeerMissing
from bench.peer_answers import MODES, PeerAnswer, PeerAnswers, rate
from bench.plant import Timed
from bench.workloads import Question, Workload
from shared.config.errors import RinglineError
from shared.config.settings import Paths
from shared.model.open import locate

_WARMUP = 8  # tokens


@dataclass
class PeerSide:
    """Asked `limit` of the questions, spread over all."""

    peer: PeerAnswers
    limit: int
    asked: list[int] = field(default_factory=list)  # numbers of the questions
    answers: dict[str, list[PeerAnswer]] = field(default_factory=lambda: {mode: [] for mode in MODES})

    @staticmethod
    def start(options: argparse.Namespace) -> PeerSide:
        """RinglineError when the interpreter has no llama-cpp-python."""
        gguf = locate(options.model, Paths(data=options.data)).source
        try:
            return PeerSide(PeerAnswers(options.peer_python, gguf, options.threads), options.peer_limit)
        except PeerMissing as error:
            raise RinglineError(str(error)) from None

    def warm_up(self, workload: Workload) -> None:
        for lookup in MODES.values():
            question = workload.warmup
            self.peer.answer(question.tokens, _WARMUP, [], lookup)

    def ask(self, number: int, of: int, question: Question, workload: Workload) -> None:
        """Question `number` of so many, if it is one of those that the peer is asked."""
        if number % max(1, of // self.limit) != 0 or len(self.asked) == self.limit:
            return
        modes = list(MODES.items())
        for mode, lookup in modes if len(self.asked) % 2 else reversed(modes):
            most, stop = question.profile.max_tokens, workload.stop_tokens
            self.answers[mode].append(self.peer.answer(question.tokens, most, stop, lookup))
        self.asked.append(number)

    def report(self, own: Sequence[Timed]) -> Report:
        """`own`: the answers of the plant that speculates, to all questions."""
        rates = {mode: rate(answers) for mode, answers in self.answers.items()}
        best = max(rates, key=lambda mode: rates[mode])
        here = figures.rate([own[number] for number in self.asked])
        return {
            "name": "llama-cpp-python",
            "version": self.peer.version,
            "answers": len(self.asked),
            "tokens_s": rates,
            "best": best,
            "ratio_to_best": here / rates[best],
        }
