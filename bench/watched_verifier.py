"""The verifier service, writing down what every pass drafted and accepted: `--passes FILE --config FILE`.

A line a sequence and pass: when it ended (monotonic seconds), and [source, depth, accepted] of each draft
node. The last line has what the verifier itself has counted since its start.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from threading import Event
from typing import Any, TextIO

from services.verifier import app
from services.verifier.engine import Engine, Failure, Outcome
from services.verifier.loop import Loop
from shared.config.service import run_service


class WatchedEngine(Engine):
    """`passes` is where the lines go."""

    passes: TextIO

    def run(self, plan: Any) -> list[Outcome | Failure]:
        started = time.monotonic()
        outcomes = super().run(plan)
        ended = time.monotonic()
        for outcome in outcomes:
            if isinstance(outcome, Outcome):
                self.passes.write(json.dumps(_line(outcome, ended - started, ended)) + "\n")
        return outcomes


def _line(outcome: Outcome, seconds: float, ended: float) -> dict[str, Any]:
    accepted = set(outcome.accepted)
    depths: list[int] = []
    for parent in outcome.drafts.parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    nodes = [
        [int(node.source), depth, int(i in accepted)]
        for i, (node, depth) in enumerate(zip(outcome.drafts.nodes, depths, strict=True))
    ]
    return {
        "at": round(ended, 6),
        "ms": round(seconds * 1000, 3),
        "forward": round(outcome.forward_ms, 3),
        "seq": outcome.sequence.seq,
        "answered": len(outcome.verdict.tokens),
        "written": outcome.written,
        "nodes": nodes,
    }


class WatchedLoop(Loop):
    def run(self, stop: Event) -> None:
        try:
            super().run(stop)
        finally:
            WatchedEngine.passes.write(json.dumps({"counted": self.tally.figures()}) + "\n")


def watch(passes: TextIO) -> None:
    """Let the verifier of this process write its passes down."""
    WatchedEngine.passes = passes
    vars(app)["Engine"] = WatchedEngine
    vars(app)["Loop"] = WatchedLoop


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--passes", type=Path, required=True)
    options, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    with options.passes.open("a", encoding="utf-8") as passes:
        watch(passes)
        run_service("verifier", app.main)


if __name__ == "__main__":
    main()
