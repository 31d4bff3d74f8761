"""A figure of a run of `bench.speculation`: each answer's speed, and what became of the drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.command import Report
from bench.figures import plots, save
from bench.speculation_sides import OWN

_SIZE = (9.0, 3.0)  # inches


def draw(report: Report, directory: Path) -> None:
    """speculation-<workload>-<draft>.png."""
    pyplot = plots()
    figure, (speed, drafts) = pyplot.subplots(1, 2, figsize=_SIZE)
    _speed(speed, report)
    _acceptance(drafts, report["sides"][OWN]["by_source"])
    notes = [f"{report['workload']}, {report['draft']}"]
    notes += ["simulated device"] if "simulated_device_ms_per_token" in report else []
    notes += ["projection of RK3588"] if report["projection_of_a_board"] else []
    figure.suptitle(", ".join(notes), fontsize=9)
    name = report["draft"].replace(":", "-").replace(" ", "-")
    save(pyplot, figure, directory / f"speculation-{report['workload']}-{name}.png")


def _speed(axes: Any, report: Report) -> None:
    ratios = report["ratios"]
    axes.plot(range(1, len(ratios) + 1), ratios, "o", markersize=3)
    axes.axhline(1.0, color="0.6", linewidth=0.8)
    axes.axhline(report["ratio_to_plain"], color="C1", linewidth=1.0, label="all answers")
    axes.set(xlabel="answer", ylabel="tokens/s, plain decoding = 1", ylim=(0, None))
    axes.legend()


def _acceptance(axes: Any, by_source: Report) -> None:
    for name, source in by_source.items():
        depths = source["by_depth"]
        axes.plot(
            [int(d) for d in depths], [c["rate"] for c in depths.values()], "o-", markersize=3, label=name
        )
    axes.set(xlabel="depth of the draft node", ylabel="accepted", ylim=(0, 1))
    if by_source:
        axes.legend()
