"""Whether samples can come from a distribution (Pearson's chi-square test), without SciPy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LEAST_EXPECTED = 5.0  # cells that are expected less often are put together


def p_value(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Probability of a deviation at least as large if the samples come from `probabilities`."""
    expected = probabilities / probabilities.sum() * counts.sum()
    assert not counts[expected == 0].any(), "what cannot come has come"
    order = np.argsort(expected)
    small = int((expected < LEAST_EXPECTED).sum())
    observed, wanted = counts[order].astype(float), expected[order]
    if small:
        observed = np.append(observed[small:], observed[:small].sum())
        wanted = np.append(wanted[small:], wanted[:small].sum())
    keep = wanted > 0
    statistic = float((((observed - wanted) ** 2)[keep] / wanted[keep]).sum())
    return survival(statistic, int(keep.sum()) - 1)


def survival(x: float, degrees: int) -> float:
    """P(chi-square of `degrees` > x): the upper incomplete gamma function, by series or continued fraction.

    Press et al., Numerical Recipes, section 6.2.
    """
    a, x = degrees / 2, x / 2
    if x <= 0:
        return 1.0
    scale = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, 10_000):
            term *= x / (a + n)
            total += term
            if term < total * 1e-15:
                break
        return max(0.0, 1 - scale * total)
    b, c, d = x + 1 - a, 1e300, 1 / (x + 1 - a)
    h = d
    for n in range(1, 10_000):
        an = -n * (n - a)
        b += 2
        d = 1 / (an * d + b)
        c = b + an / c
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return scale * h
