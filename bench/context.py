"""Streams in constant memory: what endless reading, shared prefixes and blocks cost.

    python -m bench.context --model smollm2-135m [endless] [sharing] [blocks] [--figures docs] [--json]

Without a name all three. `endless` reads --tokens tokens of log through one sequence (bench/endless.py), and
draws its figures with --figures; `sharing` compares eight sequences with a common prefix with eight without,
and the times to a first token (bench/sharing.py); `blocks` compiles and runs bench/blocks.cpp.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench import blocks, endless, figures, sharing
from bench.command import Report, model_options, print_report
from shared.config.logging import configure_logging
from shared.config.settings import Log, Paths
from shared.model.open import open_model

EXPERIMENTS = ("endless", "sharing", "blocks")


def main() -> int:
    configure_logging(Log(level="warning"), "bench")
    return print_report("bench.context", _options(), _run, _table)


def _options() -> argparse.Namespace:
    parser = model_options("bench.context", __doc__)
    parser.add_argument("experiments", nargs="*", metavar="|".join(EXPERIMENTS))
    parser.add_argument("--figures", type=Path, help="directory for the figures of endless")
    endless.add_options(parser)
    sharing.add_options(parser)
    options = parser.parse_args()
    unknown = set(options.experiments) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    options.experiments = options.experiments or list(EXPERIMENTS)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def _run(options: argparse.Namespace) -> Report:
    endless.check_options(options)
    if options.figures is not None:
        figures.plots()  # missing? Say so now, not after the run
    file = open_model(options.model, Paths(data=options.data))
    model = file.load(options.threads, options.isa)
    report: Report = {"model": file.info.name, "isa": model.isa, "threads": options.threads}
    if "endless" in options.experiments:
        series = endless.run(file, model, options)
        report["endless"] = endless.report(series)
        if options.figures is not None:
            figures.draw(series, options.figures, file.info.name, endless.evicts_at(file, options))
    if "sharing" in options.experiments:
        report["sharing"] = sharing.run(file, model, options)
    if "blocks" in options.experiments:
        report["blocks"] = blocks.run(file.info)
    return report


def _table(report: dict[str, Any]) -> str:
    tables = {"endless": endless.table, "sharing": sharing.table, "blocks": blocks.table}
    head = f"{report['model']}, {report['isa']}, {report['threads']} threads"
    return "\n".join([head, *(show(report[name]) for name, show in tables.items() if name in report)])


if __name__ == "__main__":
    sys.exit(main())
