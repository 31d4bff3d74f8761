"""Speculation against plain decoding: the real services, the same questions, in turns.

    python -m bench.speculation --workload alarms|chat|adversarial --draft none|retrieval|cpu|device:PACE

Two plants run side by side, one without drafts, and answer each question one after the other, so that what
the machine does meanwhile happens to both. PACE is milliseconds a draft token, or `0.37x`: of the plain time
of a token. `device` is a SIMULATION of a device that drafts beside the CPU (bench/device_pace.py). `cpu` and
`device` have retrieval beside them, as plants have, unless `--alone`. The target's answers, and the draft's
proposals for a simulated device, are computed ahead once and kept in the cache: that takes minutes, and none
of it is measured. Exit code 1 when an answer differs from the plain one.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.board_pace import BOARD_CURVES, BOARD_TOKEN_MS
from bench.command import Report, model_options, print_report
from bench.draft_trace import read_replay, replay_file
from bench.figures import plots
from bench.speculation_peer import PeerSide
from bench.speculation_plots import draw
from bench.speculation_report import against_trace, compared, simulated_device
from bench.speculation_sides import (
    OWN,
    PLAIN,
    TOGETHER,
    Common,
    Drafting,
    Pace,
    Side,
    inherit,
    let_past_happen,
    setup_of,
    side,
    token_ms,
    warm_up,
)
from bench.speculation_table import table
from bench.traces import trace_of, trace_path
from bench.workloads import NAMES, Workload, load_workload
from shared.bus.messages.requests import Sampling
from shared.config.errors import RinglineError
from shared.config.logging import configure_logging
from shared.config.settings import Log, Paths
from shared.model.open import ModelFile, open_model

DRAFTS = {"qwen2.5-coder-1.5b": "qwen2.5-coder-0.5b"}


def main() -> int:
    configure_logging(Log(level="warning"), "bench")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the plants end with it
    different = False

    def run(options: argparse.Namespace) -> Report:
        nonlocal different
        report = _run(options)
        different = not (report["identical"] and report.get("identical_to_engine", True))
        return report

    return print_report("bench.speculation", _options(), run, table) or int(different)


def _options() -> argparse.Namespace:
    parser = model_options("bench.speculation", __doc__, model="qwen2.5-coder-1.5b")
    parser.add_argument("--draft-model", help="default: the one that belongs to the model")
    parser.add_argument("--workload", choices=NAMES, default="alarms")
    parser.add_argument("--draft", default="retrieval", help="none, retrieval, cpu or device:PACE")
    parser.add_argument("--alone", action="store_true", help="the model drafts without retrieval beside it")
    parser.add_argument("--limit", type=int, default=0, help="questions measured at most; 0: all")
    parser.add_argument("--concurrent", type=int, default=1, help="a third plant with so many at a time")
    parser.add_argument(
        "--board", choices=list(BOARD_CURVES), help="PROJECTION: both plants at RK3588's pace"
    )
    parser.add_argument("--peer", action="store_true", help="ask llama-cpp-python too")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has llama-cpp-python")
    parser.add_argument("--peer-limit", type=int, default=12, help="questions that it is asked")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy; else acceptance is match")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plots", type=Path, help="directory for a figure")
    parser.add_argument("--tokens", type=int, help="tokens of an answer at most")
    parser.add_argument("--budget", type=int, help="verifier.node_budget of the plants that speculate")
    parser.add_argument(
        "--kill-draft", type=float, default=0.0, metavar="S", help="SIGKILL drafters every S seconds or so"
    )
    return parser.parse_args()


def _run(options: argparse.Namespace) -> Report:
    drafting = Drafting.parse(options.draft, options.alone)
    if options.temperature and (drafting.kind == "device" or options.board or options.peer):
        raise RinglineError("--temperature: a simulation and the peer know greedy answers only")
    if options.plots is not None:
        plots()  # missing? Say so now, not after the run
    paths = Paths(data=options.data)
    target = open_model(options.model, paths)
    workload = load_workload(options.workload, target, options.tokens)
    common = Common(options.data, options.model, _draft_model(options), options.threads)
    trace_file = trace_path(workload, target, paths)
    replay = _computed_ahead(options, common, drafting, workload, target)
    verifier = _verifier(options, trace_file)
    with tempfile.TemporaryDirectory(prefix="ringline-bench-") as name:
        directory = Path(name)
        if "retrieval" in drafting.sources:
            let_past_happen(common, workload, trace_file, directory / "past")
        with contextlib.ExitStack() as stack:
            peer = _peer(options, workload, stack)
            plain = stack.enter_context(side(setup_of(PLAIN, common, (), 0), directory / PLAIN, 1, verifier))
            pace = Pace(drafting, directory / "pace")
            pace.tell(warm_up(plain.plant, workload))
            sides = {PLAIN: plain}
            for own, company in _others(options):
                commands = {} if replay is None else {"draft": pace.command(replay, directory / own)}
                setup = setup_of(own, common, drafting.sources, options.budget, commands)
                setup = replace(setup, kill_draft_s=options.kill_draft)
                inherit(directory / "past", directory / own)
                sides[own] = stack.enter_context(side(setup, directory / own, company, verifier))
                warm_up(sides[own].plant, workload)
            _ask_in_turns(sides, peer, pace, replace(workload, sampling=_sampling(options)), options)
        report = compared(sides, workload, options)
        if options.temperature == 0:
            report |= against_trace(sides, trace_file, workload)
    if replay is not None:
        report |= simulated_device(report, sides, read_replay(replay), statistics.fmean(pace.told))
    if peer is not None:
        report["peer"] = peer.report(sides[OWN].answers)
    if options.plots is not None:
        draw(report, options.plots)
    return report


def _sampling(options: argparse.Namespace) -> Sampling:
    return Sampling(temperature=options.temperature, seed=options.seed)


def _peer(options: argparse.Namespace, workload: Workload, stack: contextlib.ExitStack) -> PeerSide | None:
    if not options.peer:
        return None
    side = PeerSide.start(options)
    stack.callback(side.peer.close)
    side.warm_up(workload)
    return side


def _draft_model(options: argparse.Namespace) -> str | None:
    name: str | None = options.draft_model or DRAFTS.get(options.model)
    return name


def _verifier(options: argparse.Namespace, trace: Path) -> list[str]:
    """The module that runs the verifiers, with its options."""
    if options.board is None:
        return ["bench.watched_verifier"]
    pace = ["--ms", str(BOARD_TOKEN_MS), "--curve", BOARD_CURVES[options.board]]
    return ["bench.board_pace", "--trace", str(trace), *pace]


def _computed_ahead(
    options: argparse.Namespace, common: Common, drafting: Drafting, workload: Workload, target: ModelFile
) -> Path | None:
    """What a run needs of answers and drafts; the replay's file when a device is simulated."""
    paths = Paths(data=common.data)
    needs_past = workload.past > 0 and "retrieval" in drafting.sources
    if not needs_past and drafting.kind != "device" and options.board is None:
        return None
    trace = trace_of(workload, target, paths, common.threads)
    if drafting.kind != "device":
        return None
    if common.draft is None:
        raise RinglineError(f"{common.target} has no draft model here: give one with --draft-model")
    return replay_file(trace, open_model(common.draft, paths), paths, common.threads)


def _others(options: argparse.Namespace) -> list[tuple[str, int]]:
    return [(OWN, 1), *([(TOGETHER, options.concurrent)] if options.concurrent > 1 else [])]


def _ask_in_turns(
    sides: dict[str, Side],
    peer: PeerSide | None,
    pace: Pace,
    workload: Workload,
    options: argparse.Namespace,
) -> None:
    measured = workload.questions[workload.past :]
    if options.limit:
        measured = measured[: options.limit]
    order = list(sides.values())
    step = 1 if options.concurrent == 1 else 2 * options.concurrent  # the end of a group has less company
    for begin in range(0, len(measured), step):
        together = measured[begin : begin + step]
        for one in order:
            one.ask(together, workload)
        order.reverse()
        if latest := token_ms(sides[PLAIN].answers[-1]):
            pace.tell(latest)
        for number, question in enumerate(together if peer is not None else [], start=begin):
            assert peer is not None
            peer.ask(number, len(measured), question, workload)


if __name__ == "__main__":
    sys.exit(main())
