"""What a pass costs, learnt from the passes that were run.

    seconds = s · (r(rows) + p · chunk + a · attended)

`rows` are the tree nodes of all sequences (r(1) = 1), `chunk` the tokens of a prefill chunk, `attended` the
visible positions that the tree nodes look at, summed over the nodes. s is the machine's speed at the moment
and follows quickly; r, p and a are what the model and the kernels are like and change slowly. All of them are
kept as logarithms and follow the clipped logarithmic error of each pass by their share of it: one stalled
pass moves nothing by much, and a machine that is slow for a while is slow for every number of rows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping

import numpy as np

# Relative cost of passes over a 1.5B model on a 2-core AVX-512 VNNI machine: where every process begins.
PRIOR: Mapping[int, float] = {1: 1.0, 2: 1.08, 4: 1.3, 8: 1.86, 16: 3.0, 32: 5.5}
CHUNK_ROW = 0.15
ATTENDED = 4e-5

_KNOTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)
_CLIP = 0.3  # a pass is never taken for more than e^0.3 off what was expected
_SHORTEST_S, _LONGEST_S = 1e-6, 600.0
_COLD = 8  # the first passes may: they read weights that are not in memory yet
_FOLLOW = 0.3  # of an error is taken into s at once
_LEARN = 0.05  # of an error is taken into r at a knot that was measured often, and into p and a
_SPREAD = 0.6  # of what a knot learns its unmeasured neighbour takes over
_FORGET = 1.0 - 1 / 1024  # of the weight of old measurements, a pass
_BACK = 1 / 4096  # of its distance to the prior a knot loses, a pass: what nobody measures is tried again


class PassCost:
    """Seconds of a pass of up to `most_rows` rows. `prior`: relative cost at some numbers of rows, 1 too."""

    def __init__(self, most_rows: int, prior: Mapping[int, float] = PRIOR) -> None:
        knots = [*(n for n in _KNOTS if n < most_rows), most_rows]
        self._knots = knots
        self._prior = np.log([_interpolate(prior, n) for n in knots])
        self._shape = self._prior.copy()  # log r, up to a constant that s makes up for
        self._weight = np.zeros(len(knots))
        order = np.arange(len(knots))
        self._reach = _SPREAD ** np.abs(order[:, None] - order)
        self._all = np.arange(most_rows + 1)
        self._speed: float | None = None  # log of s
        self._seen = 0
        self._chunk_row = math.log(CHUNK_ROW)
        self._attended = math.log(ATTENDED)
        self._curve = self._make_curve()

    @property
    def unit_s(self) -> float:
        """Seconds of a pass of one row without a context; 0 until the first pass."""
        return 0.0 if self._speed is None else math.exp(self._speed + float(self._shape[0]))

    @property
    def chunk_row(self) -> float:
        """Relative cost of one row of a prefill chunk."""
        return math.exp(self._chunk_row)

    @property
    def attended(self) -> float:
        """Relative cost of one visible position for one row."""
        return math.exp(self._attended)

    @property
    def curve(self) -> list[float]:
        """r(0 … most_rows), never falling; r(0) = 1: without trees the weights are read all the same."""
        return self._curve

    def seconds(self, rows: int, chunk: int = 0, attended: int = 0) -> float:
        """Expected duration; 0 until the first pass."""
        return self.unit_s * self._relative(rows, chunk, attended)

    def observe(self, seconds: float, rows: int, chunk: int = 0, attended: int = 0) -> None:
        """A pass took so long. What cannot be the duration of one is ignored."""
        if not _SHORTEST_S < seconds < _LONGEST_S:
            return
        total = self._relative(rows, chunk, attended)
        unit = math.log(seconds / total) - float(self._shape[0])
        if self._speed is None:
            self._speed = unit
        error = unit - self._speed
        clipped = min(max(error, -_CLIP), _CLIP)
        self._seen += 1
        if self._seen <= _COLD and error < 0.0:
            self._speed += error / 2
        else:
            self._speed += clipped * _FOLLOW
        self._chunk_row += _LEARN * clipped * _part(chunk * self.chunk_row / total)
        self._attended += _LEARN * clipped * _part(attended * self.attended / total)
        self._learn_shape(min(max(rows, 1), self._knots[-1]), clipped / total)

    def _relative(self, rows: int, chunk: int, attended: int) -> float:
        row = self._curve[min(rows, len(self._curve) - 1)]
        return row + chunk * self.chunk_row + attended * self.attended

    def _learn_shape(self, rows: int, error: float) -> None:
        """`error`: logarithmic, divided by the relative cost of the pass."""
        k = bisect_right(self._knots, rows) - 1
        beyond = rows - self._knots[k]
        above = beyond / (self._knots[k + 1] - self._knots[k]) if beyond else 0.0
        for knot, part in ((k, 1.0 - above), (k + 1, above)):
            if part > 0.0:
                self._weight[knot] += part
                gain = max(_LEARN, 0.5 / (1.0 + float(self._weight[knot])))
                self._move(knot, gain * error * part * self._curve[self._knots[knot]])
        self._weight *= _FORGET
        self._shape += (self._prior + self._shape[0] - self._shape) * _BACK
        self._curve = self._make_curve()

    def _move(self, knot: int, step: float) -> None:
        """Move a knot, and its neighbours the less the more they were measured themselves."""
        steps = step * self._reach[knot] / (1.0 + self._weight)
        steps[knot] = step
        self._shape += steps

    def _make_curve(self) -> list[float]:
        """Straight between the knots; a knot below an earlier one is lifted to it."""
        lifted = np.maximum.accumulate(np.exp(self._shape - self._shape[0]))
        curve: list[float] = np.interp(self._all, self._knots, lifted).tolist()
        return curve


def _part(share: float) -> float:
    """How much of an error a cost answers for that has this share of the pass; little for small shares."""
    return share / (share + 0.1)


def _interpolate(points: Mapping[int, float], n: int) -> float:
    """Straight between the points, beyond the last one on as the last two go."""
    known = sorted(points)
    after = next((i for i, m in enumerate(known) if m >= n), len(known) - 1)
    if known[after] == n or len(known) == 1:
        return points[known[after]]
    low, high = known[after - 1], known[after]
    return points[low] + (points[high] - points[low]) / (high - low) * (n - low)
