"""What Python and messages take of a pass: the loops of verifier and draft on a real model, without a bus.

    python -m bench.overhead [--model NAME] [--company 1,4] [--answers N]

Both loops run in this process, one after the other, and exchange the frames that the services would: every
message is encoded and decoded in the time of the loop that does it. The drafts are retrieval's. Only passes
without a prefill chunk count. `verifier_ms` is a pass less its forward, `draft_ms` what a drafter does for it
meanwhile, on another thread. Context's share and the sockets are not in these figures.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from bench.command import Report, model_options, print_report
from bench.private_pool import private_pool
from bench.workloads import Question, Workload, load_workload
from services.context.sequence import Ring
from services.draft.history import History
from services.draft.loop import Loop as DraftLoop
from services.draft.pacing import Pacing
from services.draft.plant import Plant
from services.verifier.batch import Limits, Plan
from services.verifier.budget import Budget
from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from services.verifier.deferral import Deferral
from services.verifier.engine import Engine, Failure, Outcome
from services.verifier.loop import Loop
from shared.bus.client import BusClient
from shared.bus.codec import decode, encode
from shared.bus.events import Joined
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Welcome
from shared.bus.messages.sequences import Commit, Proposal, SeqClose, SeqOpen, SeqState
from shared.config.logging import configure_logging
from shared.config.settings import Log, Paths, Verifier
from shared.kv import Attached, blocks_of
from shared.model.open import ModelFile, open_model
from shared.native import Model

HISTORY = 131_072


class Wire:
    """A bus whose other end is this benchmark: frames that have arrived, and those that were sent."""

    def __init__(self) -> None:
        self.arrived: deque[bytes | Joined] = deque()
        self.sent: list[bytes] = []

    def receive(self, _timeout_s: float) -> Message | Joined | None:
        if not self.arrived:
            return None
        item = self.arrived.popleft()
        return item if isinstance(item, Joined) else decode(item)

    def send(self, message: Message) -> None:
        self.sent.append(encode(message))

    def propose(self, proposal: Proposal) -> None:
        self.sent.append(encode(proposal))

    def working(self, busy: bool) -> None:
        """Nobody looks."""


class TimedEngine(Engine):
    """Knows what its latest pass was and how long the model took for it."""

    decoding = False
    forward_s = 0.0

    def run(self, plan: Plan[Any]) -> list[Outcome | Failure]:
        outcomes = super().run(plan)
        self.decoding = plan.chunk is None
        self.forward_s = max(o.forward_ms for o in outcomes if isinstance(o, Outcome)) / 1000
        return outcomes


class World:
    """Verifier, draft, and as much of context as they need for `company` answers at a time."""

    def __init__(self, model: Model, workload: Workload, company: int) -> None:
        self._workload = workload
        self._numbers = itertools.count(1)
        longest = max(len(q.tokens) + q.profile.max_tokens for q in workload.questions)
        self._each = blocks_of(longest) + 2
        pool = private_pool(model, company * self._each)
        limits = Limits.of(Verifier())
        self._engine = TimedEngine(model, limits)
        budget = Budget(PassCost(limits.pass_nodes), Calibration())
        self._verifier, self._draft = Wire(), Wire()
        bus, attach = cast(BusClient, self._verifier), lambda: Attached(pool, 1)
        self._loop = Loop(bus, self._engine, limits, budget, Deferral(limits.node_budget, 0.0), attach)
        plant, other = Plant(History(HISTORY)), cast(BusClient, self._draft)
        self._drafting = DraftLoop(other, plant, None, attach, Pacing(drafting=False))
        self._verifier.arrived.append(Joined(Welcome(context_incarnation=1, generation=1)))
        self.passes: list[tuple[float, float, float, int]] = []  # verifier, draft, forward in seconds, tokens

    def ask(self, questions: list[Question]) -> None:
        """All at once, until every one is answered."""
        for place, question in enumerate(questions):
            frame = encode(self._opened(question, place))
            self._verifier.arrived.append(frame)
            self._take_in_draft(frame)
        open_ = len(questions)
        self._forward_proposals()
        while open_:
            before = self._loop.tally.passes
            verifier_s = _timed(self._pass)
            commits = [decode(frame) for frame in self._verifier.sent]
            self._verifier.sent.clear()
            answered = [c for c in commits if isinstance(c, Commit)]
            draft_s = sum(self._reply(commit) for commit in answered)
            open_ -= sum(commit.finish is not None for commit in answered)
            self._forward_proposals()
            if self._engine.decoding and self._loop.tally.passes > before:
                forward_s, tokens = self._engine.forward_s, sum(len(c.tokens) for c in answered)
                self.passes.append((verifier_s - forward_s, draft_s, forward_s, tokens))

    def _pass(self) -> None:
        self._loop._drain()
        self._loop._step(time.monotonic())

    def _reply(self, commit: Commit) -> float:
        """What context says to a commit; seconds that the draft takes for it."""
        seq, tokens = commit.seq, commit.tokens
        if commit.finish is not None:
            closed = encode(SeqClose(seq=seq, reason=commit.finish, tokens=tokens))
            self._verifier.arrived.append(closed)
            return _timed(lambda: self._take_in_draft(closed))
        kv_len = commit.kv_len + commit.written
        state = encode(
            SeqState(seq=seq, epoch=commit.epoch + 1, kv_len=kv_len, tokens=tokens, first_block=0, blocks=[])
        )
        self._verifier.arrived.append(state)
        return _timed(lambda: self._take_in_draft(state))

    def _take_in_draft(self, frame: bytes) -> None:
        self._drafting._take(decode(frame))

    def _forward_proposals(self) -> None:
        self._verifier.arrived.extend(f for f in self._draft.sent if isinstance(decode(f), Proposal))
        self._draft.sent.clear()

    def _opened(self, question: Question, place: int) -> SeqOpen:
        sink = len(self._workload.prefixes[question.profile.name])
        ring = Ring.of(sink, question.profile.window, Limits.of(Verifier()).prefill_chunk)
        return SeqOpen(
            seq=next(self._numbers),
            epoch=0,
            tokens=question.tokens,
            prompt_len=len(question.tokens),
            kv_len=0,
            draft_kv_len=0,
            blocks=list(range(place * self._each, (place + 1) * self._each)),
            sink=ring.sink,
            ring=ring.capacity,
            window=ring.window,
            max_tokens=question.profile.max_tokens,
            stop_tokens=self._workload.stop_tokens,
            severity=question.severity,
        )


def _timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> int:
    configure_logging(Log(level="warning"), "bench")
    parser = model_options("bench.overhead", __doc__, model="qwen2.5-coder-1.5b")
    parser.add_argument("--company", default="1,4", help="answers at a time")
    parser.add_argument("--answers", type=int, default=4, help="of each company")
    return print_report("bench.overhead", parser.parse_args(), _run, _table)


def _run(options: argparse.Namespace) -> Report:
    file: ModelFile = open_model(options.model, Paths(data=options.data))
    model = file.load(options.threads, options.isa)
    workload = load_workload("alarms", file)
    report: Report = {"model": options.model}
    for company in (int(n) for n in options.company.split(",")):
        world = World(model, workload, company)
        for at in range(0, options.answers, company):
            world.ask(workload.questions[at : at + company])
        report[f"company_{company}"] = _figures(world.passes)
    return report


def _figures(passes: list[tuple[float, float, float, int]]) -> Report:
    verifier, draft, forward = (sorted(1000 * p[i] for p in passes) for i in range(3))
    return {
        "passes": len(passes),
        "tokens_per_pass": sum(p[3] for p in passes) / len(passes),
        "verifier_ms": statistics.median(verifier),
        "verifier_p95_ms": verifier[int(0.95 * len(passes))],
        "draft_ms": statistics.median(draft),
        "forward_ms": statistics.median(forward),
        "share_of_forward": statistics.median((v + d) / f for v, d, f, _ in passes),
    }


def _table(report: Report) -> str:
    lines = [f"{report['model']}: milliseconds a pass (medians)"]
    for name, figures in report.items():
        if isinstance(figures, dict):
            lines.append(
                f"  {name.replace('_', ' of '):14} verifier {figures['verifier_ms']:.2f} "
                f"(p95 {figures['verifier_p95_ms']:.2f})  draft {figures['draft_ms']:.2f}  "
                f"forward {figures['forward_ms']:.1f}  {figures['tokens_per_pass']:.2f} tokens a pass"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
