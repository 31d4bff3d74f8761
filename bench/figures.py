"""Figures of `bench.endless`, small enough for the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.series import Series
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
    for name, one in series.items():
        axes.plot(one.ends / 1e3, np.exp(one.nll), label=_LABELS[name], linewidth=1)
    axes.set(xlabel="thousand tokens read", ylabel="perplexity", yscale="log")
    axes.legend()
    _save(pyplot, figure, path)


def _cost(pyplot: Any, one: Series, path: Path) -> None:
    figure, memory = pyplot.subplots(figsize=_SIZE)
    time = memory.twinx()
    memory.plot(one.ends / 1e3, one.pss_mb, color="tab:blue")
    time.plot(one.ends / 1e3, one.ms_per_token, color="tab:orange", linewidth=1)
    memory.set(xlabel="thousand tokens read", ylim=(0, 1.5 * one.pss_mb.max()))
    time.set(ylim=(0, 1.5 * one.ms_per_token.max()))
    memory.set_ylabel("PSS, MB", color="tab:blue")
    time.set_ylabel("ms per token", color="tab:orange")
    _save(pyplot, figure, path)


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=_DPI, bbox_inches="tight", metadata={"Software": None})
    except OSError as error:
        raise RinglineError(f"cannot write the figure {path}: {error}") from error
    finally:
        pyplot.close(figure)
