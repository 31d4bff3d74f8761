"""Figures of benchmarks, those of `bench.endless`; small enough for the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.series import Series, tenths
from shared.config.errors import RinglineError

_LABELS = {"sink": "sink and window", "window": "window alone", "full": "full attention"}
_SIZE = (6.4, 3.0)  # inches
_DPI = 90


def plots() -> Any:
    """matplotlib's pyplot without a display. RinglineError when it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise RinglineError("--figures needs matplotlib: pip install 'ringline[bench]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(series: dict[str, Series], directory: Path) -> None:
    """endless-perplexity.png and endless-cost.png."""
    pyplot = plots()
    _perplexity(pyplot, series, directory / "endless-perplexity.png")
    _cost(pyplot, series["sink"], directory / "endless-cost.png")


def _perplexity(pyplot: Any, series: dict[str, Series], path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=_SIZE)
    for number, (name, one) in enumerate(series.items()):
        parts, colour = tenths(one), f"C{number}"
        axes.plot(one.ends, np.exp(one.nll), color=colour, linewidth=0.5, alpha=0.3)
        ends, perplexities = [part.end for part in parts], [part.ppl for part in parts]
        axes.plot(ends, perplexities, "o-", color=colour, markersize=3, label=_LABELS[name])
    axes.set(
        xlabel="tokens read (points: a tenth of the run)", ylabel="perplexity", xscale="log", ylim=(1, 10)
    )
    axes.legend()
    save(pyplot, figure, path)


def _cost(pyplot: Any, one: Series, path: Path) -> None:
    figure, memory = pyplot.subplots(figsize=_SIZE)
    time = memory.twinx()
    memory.plot(one.ends / 1e3, one.pss_mb, color="C0")
    time.plot(one.ends / 1e3, one.ms_per_token, color="C1", linewidth=0.7)
    memory.set(xlabel="thousand tokens read", ylim=(0, 1.5 * one.pss_mb.max()))
    time.set(ylim=(0, 1.5 * one.ms_per_token.max()))
    memory.set_ylabel("PSS, MB", color="C0")
    time.set_ylabel("ms per token", color="C1")
    save(pyplot, figure, path)


def save(pyplot: Any, figure: Any, path: Path) -> None:
    """As PNG, and close it. RinglineError when the file cannot be written."""
    try:
        figure.savefig(path, dpi=_DPI, bbox_inches="tight", metadata={"Software": None})
    except OSError as error:
        raise RinglineError(f"cannot write the figure {path}: {error}") from error
    finally:
        pyplot.close(figure)
