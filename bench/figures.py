"""Figures of `bench.endless` and `bench.endless_plant`, small enough for the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.series import Doubles, Memory, Series
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


def draw(series: dict[str, Series], directory: Path, model: str, evicts_at: int) -> None:
    """endless-perplexity-MODEL.png and endless-cost-MODEL.png. `evicts_at`: log tokens read when the first
    token of all leaves a window without a sink."""
    pyplot = plots()
    _perplexity(pyplot, series, directory / f"endless-perplexity-{model}.png", evicts_at)
    _cost(pyplot, series["sink"], directory / f"endless-cost-{model}.png")


def _perplexity(pyplot: Any, series: dict[str, Series], path: Path, evicts_at: int) -> None:
    figure, axes = pyplot.subplots(figsize=_SIZE)
    for number, (name, one) in enumerate(series.items()):
        colour = f"C{number}"
        axes.plot(one.ends, np.exp(one.nll), color=colour, linewidth=0.5, alpha=0.3)
        ends, nll = spans(one)
        axes.plot(ends, np.exp(nll), "o-", color=colour, markersize=3, label=_LABELS[name])
    axes.axvline(evicts_at, color="grey", linestyle=":", linewidth=1)
    axes.annotate(" a window alone loses\n its first token", (evicts_at, 30), fontsize="small", va="top")
    axes.set(xlabel="tokens read", ylabel="perplexity", xscale="log", yscale="log", ylim=(1.5, 40))
    axes.set_yticks([2, 3, 5, 10, 20], ["2", "3", "5", "10", "20"])
    axes.yaxis.set_minor_formatter("")
    axes.legend(loc="upper right", fontsize="small")
    save(pyplot, figure, path)


def spans(one: Series) -> tuple[Doubles, Doubles]:
    """(ends, mean negative log likelihoods) of spans each half as long again as all before it."""
    ends, means, start = [], [], 0
    while start < len(one.nll):
        end = min(len(one.nll), max(start + 1, start * 3 // 2))
        ends.append(one.ends[end - 1])
        means.append(one.nll[start:end].mean())
        start = end
    return np.array(ends), np.array(means)


def _cost(pyplot: Any, one: Series, path: Path) -> None:
    figure, memory = pyplot.subplots(figsize=_SIZE)
    time = memory.twinx()
    memory.plot(one.ends / 1e3, one.rss_mb, color="C0")
    memory.plot(one.ends / 1e3, one.anon_mb, color="C0", linestyle="--")
    time.plot(one.ends / 1e3, one.ms_per_token, color="C1", linewidth=0.7)
    memory.set(xlabel="thousand tokens read", ylim=(0, 1.5 * one.rss_mb.max()))
    time.set(ylim=(0, 4 * np.median(one.ms_per_token)))  # a disturbance of the machine is cut off
    memory.set_ylabel("RSS (of it anonymous: dashed), MB", color="C0")
    time.set_ylabel("ms per token", color="C1")
    save(pyplot, figure, path)


def draw_processes(tokens: list[int], memory: dict[str, list[Memory]], directory: Path) -> None:
    """endless-plant.png: anonymous memory of every process of a plant."""
    pyplot = plots()
    figure, axes = pyplot.subplots(figsize=_SIZE)
    for name, samples in memory.items():
        axes.plot([n / 1e3 for n in tokens], [one.anon for one in samples], label=name)
    axes.set(xlabel="thousand tokens through one stream", ylabel="anonymous memory, MB")
    axes.set_ylim(0, 1.4 * max(one.anon for samples in memory.values() for one in samples))
    axes.legend(ncols=3, fontsize="small")
    save(pyplot, figure, directory / "endless-plant.png")


def save(pyplot: Any, figure: Any, path: Path) -> None:
    """As PNG, and close it. RinglineError when the file cannot be written."""
    try:
        figure.savefig(path, dpi=_DPI, bbox_inches="tight", metadata={"Software": None})
    except OSError as error:
        raise RinglineError(f"cannot write the figure {path}: {error}") from error
    finally:
        pyplot.close(figure)
