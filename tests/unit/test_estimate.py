"""The arithmetic of the RK3588 estimate; its tools are not needed here."""

from __future__ import annotations

import pytest

from bench.estimate import BYTES, WEIGHTS, Board, Loop, inner_loop, pass_seconds

LISTING = """
main:
\tmov\tx0, 1
.L2:
\tldr\tq1, [x1]
.L3:
\tsdot\tv0.4s, v1.16b, v2.4b[0]
\t.p2align 3
\tsdot\tv0.4s, v1.16b, v2.4b[1]
\tcbnz\tx3, .L3
\tadd\tx2, x2, 1
\tb.ne\t.L2
\tb\t.L9
.L9:
\tret
"""


def loops(cycles: float) -> dict[str, list[Loop]]:
    """Kernels for 1 and 2 rows, the cost of a row being constant."""
    return {kind: [Loop(kind, rows, 0, 0, 0, {"core": cycles * rows}) for rows in (1, 2)] for kind in WEIGHTS}


def test_the_inner_loop_is_the_shortest_with_all_dot_products() -> None:
    assert [line.split()[0] for line in inner_loop(LISTING)] == ["sdot", "sdot", "cbnz"]


def test_a_pass_that_computes_little_takes_as_long_as_its_weights() -> None:
    board = Board(cores=4, ghz=2.0, gb_per_s=10.0)
    expected = sum(WEIGHTS[kind] * BYTES[kind] for kind in WEIGHTS) / 10e9
    assert pass_seconds(loops(cycles=0.1), "core", board, 1) == pytest.approx(expected)


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_a_pass_that_computes_much_takes_as_long_as_its_rows(rows: int) -> None:
    board = Board(cores=4, ghz=2.0, gb_per_s=10.0)
    expected = rows * sum(WEIGHTS.values()) / 512 * 1000 / (4 * 2e9)
    assert pass_seconds(loops(cycles=1000), "core", board, rows) == pytest.approx(expected)


def test_a_kernels_rate_counts_all_its_rows() -> None:
    assert Loop("Q4_K", 8, 0, 0, 0, {"core": 256.0}).gmac_per_s("core", 2.0) == 32.0
