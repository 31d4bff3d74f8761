"""What `bench.speculation` says of its plants, as a report."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from bench import speculation_figures as figures
from bench.command import Report
from bench.draft_trace import Replay
from bench.lockstep import best_lockstep, pass_costs
from bench.speculation_sides import OWN, PLAIN, TOGETHER, Side
from bench.traces import Trace, read_cached
from bench.workloads import Workload


def compared(sides: dict[str, Side], workload: Workload, options: argparse.Namespace) -> Report:
    """`identical`: every plant gave the same answers."""
    plain = sides[PLAIN].answers
    given = [answer.tokens for answer in plain]
    report: Report = {
        "workload": workload.name,
        "draft": options.draft + (" alone" if options.alone else ""),
        "model": options.model,
        "threads": options.threads,
        "temperature": options.temperature,
        "projection_of_a_board": options.board or "",
        "identical": all([a.tokens for a in one.answers] == given for one in sides.values()),
        **figures.paired(plain, sides[OWN].answers),
        "sides": {name: one.report() for name, one in sides.items()},
    }
    if TOGETHER in sides:
        report["together"] = _together(sides)
    return report


def _together(sides: dict[str, Side]) -> Report:
    together = figures.whole_rate(sides[TOGETHER].answers)
    return {
        "company": sides[TOGETHER].company,
        "ratio_to_one_plain": together / figures.whole_rate(sides[PLAIN].answers),
        "ratio_to_one_speculating": together / figures.whole_rate(sides[OWN].answers),
    }


def against_trace(sides: dict[str, Side], trace_file: Path, workload: Workload) -> Report:
    """`identical_to_engine`: the plants' greedy answers are those of the engine alone, computed ahead.

    A plant with a past answers much that it has answered before: the two kinds apart.
    """
    if not trace_file.is_file():
        return {}
    items = read_cached(trace_file, Trace).items
    plain, own = sides[PLAIN].answers, sides[OWN].answers
    alone = {item.id: item.answer for item in items}
    found: Report = {"identical_to_engine": all(a.tokens == alone[a.question.id] for a in plain)}
    if workload.past:
        before = figures.said_before([item.answer for item in items[: workload.past]], plain)
        found["by_novelty"] = figures.by_novelty(plain, own, before)
    return found


def simulated_device(report: Report, sides: dict[str, Side], replay: Replay, pace_ms: float) -> Report:
    """The same drafts without running ahead; they are the same only when the model drafts alone."""
    found: Report = {"simulated_device_ms_per_token": pace_ms}
    if "retrieval" in sides[OWN].plant.setup.sources:
        return found
    asked = {answer.question.id for answer in sides[PLAIN].answers}
    items = [item for item in replay.trace.items if item.id in asked]
    by_nodes = {**report["sides"][OWN]["pass_ms_by_nodes"], **report["sides"][PLAIN]["pass_ms_by_nodes"]}
    costs = pass_costs(1000 / report["sides"][PLAIN]["tokens_s"], by_nodes)
    best = best_lockstep(items, replay.after, pace_ms, costs)
    gain = report["ratio_to_plain"] / best.ratio
    return found | {"lockstep_computed": asdict(best), "gain_of_running_ahead": gain}
