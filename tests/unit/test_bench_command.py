"""The benchmarks' command lines: the same options, one report, one line for an error."""

from __future__ import annotations

import argparse

import pytest

from bench.command import Report, model_options, print_report
from shared.config.errors import RinglineError

PLAIN, JSON = argparse.Namespace(json=False), argparse.Namespace(json=True)


def table(report: Report) -> str:
    return f"{report['rate']} tokens/s"


def test_the_options_of_every_benchmark_are_there() -> None:
    options = model_options("bench.x", "What it measures.\n\nMore.").parse_args(["--model", "m"])
    assert (options.threads, options.isa, str(options.data), options.json) == (2, "", ".ringline", False)


@pytest.mark.parametrize(("options", "expected"), [(PLAIN, "3 tokens/s"), (JSON, '{\n  "rate": 3\n}')])
def test_a_report_is_a_table_or_json(
    capsys: pytest.CaptureFixture[str], options: argparse.Namespace, expected: str
) -> None:
    assert print_report("bench.x", options, lambda _: {"rate": 3}, table) == 0
    assert capsys.readouterr().out == expected + "\n"


def test_an_error_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_options: argparse.Namespace) -> Report:
        raise RinglineError("no model")

    assert print_report("bench.x", PLAIN, fail, table) == 2
    assert capsys.readouterr().err == "bench.x: no model\n"
