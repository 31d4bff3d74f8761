"""From logits to the distribution that is sampled, in a fixed order:

1. repetition penalty r (Keskar et al. 2019, arXiv:1909.05858): a logit of a token that is in the window
   becomes l / r when it is positive, l · r otherwise
2. temperature T: l / T; T = 0 keeps nothing but the largest logit, the lowest id among equals
3. top-k: the k largest, lower ids first among equals
4. min-p: at least `min_p` times the likeliest one's probability
5. top-p (Holtzman et al. 2019, arXiv:1904.09751): the likeliest tokens until they have `top_p` of what 3 and
   4 have left

What is kept is sorted, the likeliest first and lower ids first among equals; only when nothing is cut are all
tokens kept, in the order of their ids. A full sort of a 150k vocabulary costs more than the rest of the work,
so candidates are found by a bound: of 64 interleaved slices of the row, the k-th largest maximum.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shared.bus.messages.requests import Sampling
from shared.sampling.distribution import Distribution, Ids, Weights

Logits = NDArray[np.float32]

_SLICES = 64
_HEAD = 256  # candidates that top-p looks at first
_LEAST = 1e-6  # relative to the likeliest one; when even more are needed, all are sorted


def warp(logits: Logits, history: Ids, sampling: Sampling) -> Distribution:
    """The distribution of the next token. `logits` float32 [n_vocab], unchanged; `history`: ids to penalise.

    ValueError when the largest logit is not finite.
    """
    logits = _penalise(logits, history, sampling.repetition_penalty)
    top = float(logits.max())
    if not math.isfinite(top):
        raise ValueError("the model's logits are not finite")
    if sampling.temperature == 0:
        return Distribution.point(int(logits.argmax()))
    if sampling.top_k or sampling.min_p:
        return _cut(logits, top, sampling)
    if sampling.top_p < 1:
        return _nucleus_of_all(logits, top, sampling)
    return Distribution(_all_weights(logits, top, sampling.temperature).astype(np.float64))


def likeliest(logits: Logits, k: int) -> Ids:
    """Ids of the k largest logits, the largest first, lower ids first among equals."""
    return _sorted(logits, np.flatnonzero(logits >= _bound(logits, k)))[:k]


def _penalise(logits: Logits, history: Ids, penalty: float) -> Logits:
    if penalty == 1 or not len(history):
        return logits
    seen = logits[history]
    penalised = logits.copy()
    penalised[history] = np.where(seen > 0, seen / np.float32(penalty), seen * np.float32(penalty))
    return penalised


def _cut(logits: Logits, top: float, sampling: Sampling) -> Distribution:
    """Steps 3 to 5 when 3 or 4 leave little."""
    if sampling.top_k:
        ids = likeliest(logits, sampling.top_k)
    else:
        least = top + sampling.temperature * math.log(sampling.min_p)
        found = np.flatnonzero(logits >= np.float32(least - abs(least) * 1e-6))  # a superset: exact below
        ids = _sorted(logits, found)
    weights = _weights(logits, ids, top, sampling.temperature)
    if sampling.min_p:
        weights = weights[weights >= sampling.min_p]
    n = _nucleus(weights, sampling.top_p * float(weights.sum())) if sampling.top_p < 1 else len(weights)
    return Distribution(weights[:n], ids[:n])


def _nucleus_of_all(logits: Logits, top: float, sampling: Sampling) -> Distribution:
    """Top-p of the whole vocabulary: sorted only as far as it goes."""
    every = _all_weights(logits, top, sampling.temperature)
    wanted = sampling.top_p * float(every.sum(dtype=np.float64))
    ids = likeliest(logits, _HEAD)
    weights = _weights(logits, ids, top, sampling.temperature)
    if weights.sum() < wanted:
        ids = _sorted(logits, _enough(every, wanted))
        weights = _weights(logits, ids, top, sampling.temperature)
    n = _nucleus(weights, wanted)
    return Distribution(weights[:n], ids[:n])


def _enough(weights: Logits, wanted: float) -> Ids:
    """Ids of all tokens with at least some weight, so that they certainly add up to `wanted`."""
    least = np.float32(1 / 8)
    while least > _LEAST:
        found = np.flatnonzero(weights >= least)
        if weights[found].sum(dtype=np.float64) > wanted * (1 + 1e-4):
            return found
        least /= 4
    return np.arange(len(weights))


def _sorted(logits: Logits, ids: Ids) -> Ids:
    """By logit, the largest first, lower ids first among equals: as integers, which sort many times faster.

    The bits of a float, read as an integer, are in its order; those of a negative one in the reverse.
    """
    bits = (logits[ids] + np.float32(0)).view(np.int32).astype(np.int64)  # + 0: there is only one zero
    keys = -np.where(bits < 0, bits ^ 0x7FFFFFFF, bits) << 32 | ids
    keys.sort()
    return keys & 0xFFFFFFFF


def _nucleus(weights: Weights, wanted: float) -> int:
    """How many of the weights, in their order, add up to at least `wanted`; at least 1, at most all."""
    return min(len(weights), 1 + int(np.searchsorted(weights.cumsum(), wanted)))


def _weights(logits: Logits, ids: Ids, top: float, temperature: float) -> Weights:
    """exp((l - top) / T) of some tokens."""
    weights: Weights = np.exp((logits[ids].astype(np.float64) - top) / temperature)
    return weights


def _all_weights(logits: Logits, top: float, temperature: float) -> Logits:
    """The same of all tokens, in single precision: a relative error of 1e-6, a tenth of the time."""
    scaled = logits - np.float32(top)
    scaled *= np.float32(1.0 / temperature)
    weights: Logits = np.exp(scaled, out=scaled)
    return weights


def _bound(logits: Logits, k: int) -> float:
    """A value that at least k logits reach; few more do."""
    slices = len(logits) // _SLICES
    if k >= len(logits):
        return -math.inf
    if k > slices:
        return float(np.partition(logits, len(logits) - k)[len(logits) - k])
    maxima = logits[: slices * _SLICES].reshape(_SLICES, slices).max(axis=0)
    return float(np.partition(maxima, slices - k)[slices - k])
