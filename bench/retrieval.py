"""Retrieval drafts against answers that are known: tokens a pass, and the speed they bring.

    python -m bench.retrieval --workload alarms|chat|adversarial

A simulation: no model runs. Each answer is followed as the services would, with the drafts of the draft
service and passes of the most tokens for the time, where a pass of n rows costs what `services.verifier.cost`
begins with. The target's answers come from the cache of `bench.speculation` or are computed once. Of a
workload with a past only what comes after it counts. `--without-history` and `--lexicon FILE` change what is
drafted from.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

from bench.command import Report, model_options, print_report
from bench.traces import Traced, trace_of
from bench.workloads import NAMES, Workload, load_workload
from services.draft.history import History
from services.draft.lexicon import Lexicon
from services.draft.plant import Plant
from services.draft.retrieval import Retrieval, Tree
from services.verifier.cost import PassCost
from shared.bus.messages.sequences import SeqOpen
from shared.config.settings import Paths
from shared.lexicon import read_lexicon
from shared.model.open import ModelFile, open_model

HISTORY = 131_072
MOST_NODES = 24  # of a pass


@dataclass
class Tally:
    tokens: int = 0
    passes: int = 0
    drafted: int = 0
    cost: float = 0.0  # a pass of one row is 1
    seconds: float = 0.0  # of drafting

    def report(self) -> Report:
        return {
            "tokens_per_pass": self.tokens / self.passes,
            "drafted_per_pass": self.drafted / self.passes,
            "simulated_ratio_to_plain": self.tokens / self.cost,
            "draft_us": 1e6 * self.seconds / self.passes,
        }


def main() -> int:
    parser = model_options("bench.retrieval", __doc__, model="qwen2.5-coder-1.5b")
    parser.add_argument("--workload", choices=NAMES, default="alarms")
    parser.add_argument("--without-history", action="store_true", help="draft from the sequence itself only")
    parser.add_argument("--lexicon", type=Path, help="draft from this lexicon, too")
    return print_report("bench.retrieval", parser.parse_args(), _run, _table)


def _run(options: argparse.Namespace) -> Report:
    paths = Paths(data=options.data)
    file = open_model(options.model, paths)
    workload = load_workload(options.workload, file)
    trace = trace_of(workload, file, paths, options.threads)
    plant = _plant(options, file)
    curve = PassCost(1 + MOST_NODES).curve
    first, last = Tally(), Tally()
    for number, item in enumerate(trace.items):
        tally = first if number < trace.past else last
        follow(item, sink_of(item, workload), plant, curve, tally)
    report: Report = {"workload": workload.name, "simulation": True, **last.report()}
    if trace.past:
        report["past"] = first.report()
    return report


def _plant(options: argparse.Namespace, file: ModelFile) -> Plant:
    history = None if options.without_history else History(HISTORY)
    if options.lexicon is None:
        return Plant(history)
    info = file.info
    return Plant(history, Lexicon(read_lexicon(options.lexicon, info.vocabulary_hash, info.spec["n_vocab"])))


def sink_of(item: Traced, workload: Workload) -> int:
    """Tokens of the profile that the prompt begins with."""
    prefixes = workload.prefixes.values()
    return max(len(prefix) for prefix in prefixes if item.prompt[: len(prefix)] == prefix)


def follow(item: Traced, sink: int, plant: Plant, curve: list[float], tally: Tally) -> None:
    """Answer it in passes; the plant knows the answer afterwards."""
    source = Retrieval(opened(item, sink), plant)
    known = 0
    while known < len(item.answer):
        begun = time.perf_counter()
        tree = source.draft()
        tally.seconds += time.perf_counter() - begun
        n = most_for_the_time(tree, curve, len(item.answer) - known - 1)
        new = item.answer[known : known + 1 + _accepted(tree, n, item.answer[known:])]
        source.advance(new)
        known += len(new)
        tally.passes += 1
        tally.tokens += len(new)
        tally.drafted += n
        tally.cost += curve[1 + n]
    source.finished()


def most_for_the_time(tree: Tree, curve: list[float], most: int) -> int:
    """How many of the tree's first nodes bring the most tokens for what the pass costs."""
    scores: list[float] = []
    best, chosen, tokens = 1.0, 0, 1.0
    for n, (parent, logq) in enumerate(zip(tree[1][:most], tree[3], strict=False), start=1):
        if n >= len(curve) - 1:
            break
        scores.append(logq + (scores[parent] if parent >= 0 else 0.0))
        tokens += math.exp(scores[-1])
        if tokens / curve[1 + n] > best:
            best, chosen = tokens / curve[1 + n], n
    return chosen


def _accepted(tree: Tree, n: int, answer: list[int]) -> int:
    """How many tokens of the answer the tree's first n nodes hold."""
    children = {(parent, token): i for i, (token, parent) in enumerate(zip(*tree[:2], strict=True)) if i < n}
    at, accepted = -1, 0
    while accepted + 1 < len(answer) and (at, answer[accepted]) in children:
        at = children[(at, answer[accepted])]
        accepted += 1
    return accepted


def opened(item: Traced, sink: int) -> SeqOpen:
    """What the draft service is told; `sink`: tokens of the profile."""
    n = len(item.prompt)
    return SeqOpen(
        seq=1, epoch=0, tokens=item.prompt, prompt_len=n, kv_len=n, draft_kv_len=0, blocks=[], sink=sink,
        ring=0, window=0, max_tokens=max(len(item.answer), 1), stop_tokens=[], severity=1,
    )  # fmt: skip


def _table(report: Report) -> str:
    lines = [f"{report['workload']} (simulation): retrieval drafts"]
    lines += [f"  {name:26} {value:.2f}" for name, value in report.items() if isinstance(value, float)]
    if "past" in report:
        lines += ["its past"]
        lines += [f"  {name:26} {value:.2f}" for name, value in report["past"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
