"""What the benchmarks' command lines have in common."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.config.errors import RinglineError

Report = dict[str, Any]


def model_options(name: str, doc: str | None, model: str | None = None) -> argparse.ArgumentParser:
    """A parser with the options of a benchmark that loads a model; the first line of `doc` describes it.

    `model` is the default; without one the model has to be named.
    """
    parser = argparse.ArgumentParser(prog=name, description=(doc or "").partition("\n")[0])
    parser.add_argument(
        "--model", required=model is None, default=model, help="name in the catalogue, or the path of a GGUF"
    )
    parser.add_argument(
        "--data", type=Path, default=Path(".ringline"), help="directory of models and weight caches"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default="", help="instruction-set variant (default: the best)")
    parser.add_argument("--json", action="store_true")
    return parser


def print_report(
    name: str,
    options: argparse.Namespace,
    run: Callable[[argparse.Namespace], Report],
    table: Callable[[Report], str],
) -> int:
    """Print what `run` reports, as JSON or as `table` writes it. Exit code: 2 and one line for an error."""
    try:
        report = run(options)
    except RinglineError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report, indent=2) if options.json else table(report))
    return 0
