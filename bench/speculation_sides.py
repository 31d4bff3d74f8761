"""The plants that `bench.speculation` compares: how they are set up, and the past that they have."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import speculation_figures as figures
from bench.command import Report
from bench.plant import Plant, Setup, Timed
from bench.workloads import Question, Workload
from shared.config.errors import RinglineError
from shared.config.whole_file import replace_file

PLAIN, OWN, TOGETHER = "plain", "speculating", "together"
DEVICE_COUNTS = "device.json"
_SOURCES = {"none": (), "retrieval": ("retrieval",), "cpu": ("cpu",), "device": ("cpu",)}


@dataclass(frozen=True)
class Drafting:
    """`--draft` in parts. `pace` of a simulated device: ms a token, or `relative` to the target's time."""

    kind: str
    sources: tuple[str, ...]
    pace: float = 0.0
    relative: bool = False

    @staticmethod
    def parse(text: str, alone: bool) -> Drafting:
        """RinglineError for what is none of none, retrieval, cpu, device:MS, device:0.37x."""
        kind, _, pace = text.partition(":")
        relative = pace.endswith("x")
        try:
            number = float(pace.removesuffix("x")) if kind == "device" else 0.0
            sources = _SOURCES[kind]
        except (KeyError, ValueError):
            raise RinglineError(
                f"--draft {text}: choose none, retrieval, cpu, device:25 (ms a token) or device:0.37x"
            ) from None
        if kind in ("cpu", "device") and not alone:
            sources = ("retrieval", *sources)
        return Drafting(kind, sources, number, relative)

    def pace_ms(self, token_ms: float) -> float:
        return self.pace * token_ms if self.relative else self.pace


@dataclass(frozen=True)
class Common:
    """What all plants of a run have in common."""

    data: Path
    target: str
    draft: str | None
    threads: int


@dataclass
class Side:
    """A plant, the number of questions it gets at a time, and what it answered."""

    plant: Plant
    company: int
    passes: Path
    answers: list[Timed] = field(default_factory=list)
    cpu_s: dict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # processor time of each service

    def ask(self, questions: list[Question], workload: Workload) -> None:
        before = self.plant.cpu_seconds()
        self.answers += self.plant.ask(questions, workload, self.company)
        for name, seconds in self.plant.cpu_seconds().items():
            self.cpu_s[name] += seconds - before[name]

    def report(self) -> Report:
        spans = [(a.submitted, a.ended) for a in self.answers]
        with self.passes.open(encoding="utf-8") as lines:
            passes, counted = figures.read_passes(lines, spans)
        return {
            "answers": len(self.answers),
            "tokens": sum(len(a.tokens) for a in self.answers),
            "tokens_s": figures.rate(self.answers),
            "tokens_s_whole": figures.whole_rate(self.answers),
            **figures.latencies(self.answers),
            **figures.speculation(passes, self.plant.setup.name_of_model),
            **figures.overhead(self.answers, passes, self.cpu_s),
            "counted_since_start": counted,
            "draft_kills": self.plant.kills,
            **self._device_counts(),
        }

    def _device_counts(self) -> Report:
        path = self.passes.with_name(DEVICE_COUNTS)
        if not path.is_file():
            return {}
        return {"simulated_device_counted": json.loads(path.read_text(encoding="utf-8"))}


@contextlib.contextmanager
def side(setup: Setup, home: Path, company: int, verifier: Sequence[str]) -> Iterator[Side]:
    """A plant from here on, its passes written down. `verifier`: the module that runs it, and its options."""
    passes = home / "passes.jsonl"
    command = ["-m", *verifier, "--passes", str(passes)]
    setup = dataclasses.replace(setup, commands=setup.commands | {"verifier": command})
    with Plant(setup, home) as plant:
        yield Side(plant, company, passes)
        plant.check_log()


def setup_of(
    name: str,
    common: Common,
    sources: tuple[str, ...],
    budget: int | None,
    commands: dict[str, list[str]] | None = None,
) -> Setup:
    return Setup(
        name=name,
        name_of_model="simulated device" if "draft" in (commands or {}) else "cpu",
        data=common.data,
        target=common.target,
        draft=common.draft,
        threads=common.threads,
        sources=sources,
        verifier={} if budget is None else {"node_budget": budget},
        commands=commands or {},
    )


def let_past_happen(common: Common, workload: Workload, trace: Path, home: Path) -> None:
    """The workload's past is answered in the plant at `home`, as fast as messages go: the target's answers
    are known, so a replayed one gives them (bench/board_pace.py). What the draft service learns stays."""
    past = workload.questions[: workload.past]
    if not past:
        return
    print(f"{len(past)} questions happen as the past", file=sys.stderr, flush=True)
    replayed = ["-m", "bench.board_pace", "--trace", str(trace), "--ms", "0"]
    setup = setup_of("past", common, ("retrieval",), None, {"verifier": replayed})
    with Plant(setup, home) as plant:
        plant.register(workload)
        plant.ask(past, workload)
        plant.check_log()


def inherit(past: Path, home: Path) -> None:
    """Give a plant what another one has learnt: its files, but not its configuration, log and models."""
    left = shutil.ignore_patterns(
        "models", "cache", "ringline.toml", "services.log", "passes.jsonl", DEVICE_COUNTS
    )
    if past.exists():
        shutil.copytree(past, home, ignore=left, dirs_exist_ok=True)


def warm_up(plant: Plant, workload: Workload) -> float:
    """Register, answer something twice; milliseconds a token of the second time, the median."""
    plant.register(workload)
    forced = dataclasses.replace(workload, stop_tokens=[])
    plant.ask([workload.warmup], forced)
    (answer,) = plant.ask([dataclasses.replace(workload.warmup, id="again")], forced)
    return token_ms(answer)


def token_ms(answer: Timed) -> float:
    """Milliseconds a token, the median over the pieces behind the first; 0 when there is none."""
    gaps = [1000 * (after[0] - before[0]) / after[1] for before, after in itertools.pairwise(answer.pieces)]
    return statistics.median(gaps) if gaps else 0.0


class Pace:
    """The pace of simulated devices, in a file that they look at for every token.

    A relative one follows the plain plant: the machine's speed drifts, the device's relation to it must not.
    """

    def __init__(self, drafting: Drafting, file: Path) -> None:
        self._drafting = drafting
        self.file = file
        self.told: list[float] = []  # ms a draft token

    def tell(self, token_ms: float) -> None:
        """A plain token takes so long now."""
        self.told.append(self._drafting.pace_ms(token_ms))
        replace_file(self.file, f"{self.told[-1]:.4f}".encode())

    def command(self, replay: Path, home: Path) -> list[str]:
        options = ["--replay", str(replay), "--pace", str(self.file), "--counts", str(home / DEVICE_COUNTS)]
        return ["-m", "bench.device_pace", *options]
