"""What a long run was like along its way: samples at equal distances, summed up in tenths."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
MEMORY = Path("/proc/self/smaps_rollup")


class Memory(NamedTuple):
    """Of a process, in MB (2^20 bytes). PSS counts a page that n processes map as 1/n, so it moves when other
    processes begin or cease to map the same files; `anon`, memory of no file, is this process's alone."""

    rss: float
    pss: float
    anon: float


def memory_mb(smaps_rollup: str) -> Memory:
    kb = {
        line.split(":")[0]: int(line.split()[1])
        for line in smaps_rollup.splitlines()
        if line.startswith(("Rss:", "Pss:", "Pss_Anon:"))
    }
    return Memory(*(kb[key] / 1024 for key in ("Rss", "Pss", "Pss_Anon")))


def read_memory(pid: int | str = "self") -> Memory:
    return memory_mb(Path(f"/proc/{pid}/smaps_rollup").read_text())


class Series:
    """`samples` samples of `tokens` tokens each. All of its memory is touched at once: it does not grow."""

    def __init__(self, samples: int, tokens: int) -> None:
        self.tokens = tokens
        self._filled = 0
        self._rows = np.full((samples, 2 + len(Memory._fields)), np.nan)

    def add(self, nll: float, seconds: float, memory: Memory) -> None:
        """Mean negative log likelihood and time of the sample's tokens, and the memory behind them."""
        self._rows[self._filled] = nll, seconds, *memory
        self._filled += 1

    @property
    def ends(self) -> Doubles:
        """Tokens read at the end of each sample."""
        return np.arange(1, self._filled + 1, dtype=np.float64) * self.tokens

    @property
    def nll(self) -> Doubles:
        return self._rows[: self._filled, 0]

    @property
    def ms_per_token(self) -> Doubles:
        return self._rows[: self._filled, 1] * 1e3 / self.tokens

    @property
    def rss_mb(self) -> Doubles:
        return self._rows[: self._filled, 2]

    @property
    def pss_mb(self) -> Doubles:
        return self._rows[: self._filled, 3]

    @property
    def anon_mb(self) -> Doubles:
        return self._rows[: self._filled, 4]


@dataclass(frozen=True)
class Tenth:
    """`ms_per_token` is the median over its samples, so that a disturbance of the machine does not count."""

    end: int  # tokens read
    ppl: float
    ms_per_token: float
    rss_mb: float
    pss_mb: float


def tenths(series: Series) -> list[Tenth]:
    """Ten parts of as nearly equal length as the samples allow. ValueError when there are fewer than ten."""
    samples = len(series.nll)
    if samples < 10:
        raise ValueError(f"{samples} samples are not ten parts")
    return [_tenth(series, part) for part in np.array_split(np.arange(samples), 10)]


def _tenth(series: Series, part: NDArray[np.int64]) -> Tenth:
    return Tenth(
        end=int(series.ends[part[-1]]),
        ppl=math.exp(series.nll[part].mean()),
        ms_per_token=float(np.median(series.ms_per_token[part])),
        rss_mb=float(series.rss_mb[part].mean()),
        pss_mb=float(series.pss_mb[part].mean()),
    )


def slope(x: Iterable[float], y: Iterable[float]) -> float:
    """Of the line of least squares through at least two points of different x."""
    xs, ys = np.fromiter(x, np.float64), np.fromiter(y, np.float64)
    centred = xs - xs.mean()
    return float((centred * (ys - ys.mean())).sum() / (centred**2).sum())


def summary(series: Series) -> dict[str, float]:
    """The whole run in five figures. The first tenth fills memory and window, so it is left out."""
    parts = tenths(series)
    behind = slice(len(series.nll) // 10, None)
    return {
        "pss_mb_per_100k_tokens": 1e5 * slope(series.ends[behind], series.pss_mb[behind]),
        "rss_mb_per_100k_tokens": 1e5 * slope(series.ends[behind], series.rss_mb[behind]),
        "anon_mb_per_100k_tokens": 1e5 * slope(series.ends[behind], series.anon_mb[behind]),
        "ppl_last_to_second": parts[-1].ppl / parts[1].ppl,
        "time_last_to_second": parts[-1].ms_per_token / parts[1].ms_per_token,
    }
