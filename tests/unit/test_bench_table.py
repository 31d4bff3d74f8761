"""The table of `make bench`."""

from __future__ import annotations

from typing import Any

from bench.engine import _table

RATE = {"ms": 10.0, "tokens_s": 100.0, "weights_gb_s": 9.0, "gmac_s": 30.0, "share_of_bandwidth": 0.9}
REPORT: dict[str, Any] = {
    "model": "m",
    "isa": "avx2",
    "threads": 2,
    "read_gb_s": 10.0,
    "rows": {"1": RATE},
}


def test_the_column_of_the_other_engine_is_there_only_when_it_was_measured() -> None:
    """And the other columns stay where they are."""
    alone = _table(REPORT).splitlines()
    compared = _table({**REPORT, "ratio_to_peer": {"1": 1.2}, "ratio_spread": {"1": [1.1, 1.3]}}).splitlines()
    assert "llama.cpp" not in alone[1]
    assert compared[1] == alone[1] + "  x llama.cpp"
    assert compared[2] == alone[2] + "   1.20 (1.10 to 1.30)"
