"""The branch prior's λ: how often the best branch is the target's token, for several λ.

    python -m bench.branch_prior [--json]

For every token of the known answers to the alarms workload: the draft model's likeliest tokens behind the
true context, ordered by log q + λ · log prior, where the prior knows the answers before. λ is to be chosen on
the workload's past without its first quarter, when there is hardly a history, and judged on what comes after.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bench.command import Report, model_options, print_report
from bench.greedy import CHUNK
from bench.private_pool import private_view
from bench.retrieval import HISTORY, opened
from bench.traces import Trace, Traced, progress, trace_of
from bench.workloads import load_workload
from services.draft.children import CANDIDATES
from services.draft.history import Answer, History
from services.draft.plant import Plant
from services.draft.prior import BranchPrior, reorder
from shared.config.settings import Paths
from shared.model.open import open_model
from shared.native import BLOCK_TOKENS, Model, Scratch, likeliest_tokens

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0)
_UNLIKELY = 1e-4  # stands for the probability of a token that is not among the candidates
Likely = tuple[list[int], list[float]]  # tokens and their natural log probabilities


@dataclass
class Judged:
    """Of one λ on one part."""

    tokens: int = 0
    first: int = 0  # times the best branch was right
    both: int = 0  # times one of the best two was
    loss: float = 0.0  # sum of -log p

    def add(self, ordered: Likely, token: int) -> None:
        ids, logq = ordered
        self.tokens += 1
        self.first += ids[0] == token
        self.both += token in ids[:2]
        self.loss -= logq[ids.index(token)] if token in ids else math.log(_UNLIKELY)

    def report(self) -> Report:
        n = self.tokens
        return {"first": self.first / n, "one_of_two": self.both / n, "loss": self.loss / n}


@dataclass
class Part:
    name: str
    judged: dict[float, Judged] = field(default_factory=lambda: {weight: Judged() for weight in WEIGHTS})


class Drafter:
    """The draft model behind known texts. What two prompts begin with is computed once."""

    def __init__(self, model: Model, longest: int) -> None:
        self._scratch = Scratch(model, CHUNK, CHUNK)
        self._view = private_view(model, longest + BLOCK_TOKENS)
        self._known: list[int] = []

    def behind(self, prompt: list[int], answer: list[int]) -> list[Likely]:
        """The likeliest tokens in the place of each token of the answer."""
        tokens, begin = [*prompt, *answer[:-1]], len(prompt) - 1
        same = next((i for i, (a, b) in enumerate(zip(tokens, self._known, strict=False)) if a != b), 0)
        self._view.length = min(same, begin)
        self._known = tokens
        found: list[Likely] = []
        while (at := self._view.length) < len(tokens):
            end = min(at + CHUNK, len(tokens) if at >= begin else begin)
            found += self._chunk(tokens[at:end], at >= begin)
        return found

    def _chunk(self, tokens: list[int], wanted: bool) -> Iterator[Likely]:
        path = np.arange(len(tokens), dtype=np.int32)
        outputs = path if wanted else path[:0]
        self._scratch.clear()
        self._scratch.forward(
            [self._view], np.zeros_like(path), np.array(tokens, np.int32), path - 1, outputs
        )
        rows = [likeliest_tokens(row, CANDIDATES) for row in self._scratch.logits()] if wanted else []
        self._scratch.commit(self._view, path)
        return iter(rows)


def main() -> int:
    parser = model_options("bench.branch_prior", __doc__, model="qwen2.5-coder-1.5b")
    parser.add_argument("--draft-model", default="qwen2.5-coder-0.5b")
    return print_report("bench.branch_prior", parser.parse_args(), _run, _table)


def _run(options: argparse.Namespace) -> Report:
    paths = Paths(data=options.data)
    target, draft = open_model(options.model, paths), open_model(options.draft_model, paths)
    trace = trace_of(load_workload("alarms", target), target, paths, options.threads)
    longest = max(len(item.prompt) + len(item.answer) for item in trace.items)
    parts = _judge(trace, Drafter(draft.load(options.threads), longest))
    return {part.name: {str(w): judged.report() for w, judged in part.judged.items()} for part in parts}


def _judge(trace: Trace, drafter: Drafter) -> list[Part]:
    start, chosen, held_out = Part("start"), Part("chosen on"), Part("held out")
    plant = Plant(History(HISTORY))
    assert plant.history is not None
    say = progress("drafts", len(trace.items))
    for number, item in enumerate(trace.items):
        part = start if number < trace.past // 4 else chosen if number < trace.past else held_out
        _judge_one(item, plant, drafter, part)
        plant.history.add(Answer.of(item.prompt, item.answer))
        say(number + 1)
    return [start, chosen, held_out]


def _judge_one(item: Traced, plant: Plant, drafter: Drafter, part: Part) -> None:
    prior = BranchPrior(opened(item, 0), plant)
    for token, (ids, logq) in zip(item.answer, drafter.behind(item.prompt, item.answer), strict=True):
        known = prior.behind(())(ids)
        for weight, judged in part.judged.items():
            judged.add(reorder(ids, logq, known, weight), token)
        prior.advance([token])


def _table(report: Report) -> str:
    lines = ["λ: the best branch is right, one of two is, loss"]
    for part, weights in report.items():
        lines += [part]
        lines += [
            f"  {w:5} {r['first']:7.3f} {r['one_of_two']:7.3f} {r['loss']:7.3f}" for w, r in weights.items()
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
