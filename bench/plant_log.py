"""Log lines of an imaginary plant: the same machines, faults and odds from the first line to the last. A long
text that does not drift shows whether the one who reads it does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

# (machine, quantity, unit, usual value, spread, limit), in the manner of deploy/demo/alarms.jsonl
_MEASURED = (
    ("boiler2", "suction strainer differential pressure", "bar", 0.35, 0.12, 0.50),
    ("boiler2", "feed pump P2 motor current", "A", 2.9, 0.4, 3.6),
    ("boiler2", "drum water level", "mm", 4.0, 22.0, 40.0),
    ("cnc-01", "spindle bearing temperature", "degC", 61.0, 9.0, 75.0),
    ("cnc-02", "X axis servo load", "%", 96.0, 31.0, 150.0),
    ("compressor1", "second stage discharge temperature", "degC", 143.0, 12.0, 165.0),
    ("compressor1", "oil pressure", "bar", 3.4, 0.3, 4.0),
    ("conveyor3", "gearbox vibration", "mm/s", 3.1, 1.4, 6.3),
    ("chiller", "condenser approach", "K", 4.2, 1.1, 6.0),
    ("press4", "hydraulic oil temperature", "degC", 47.0, 5.0, 60.0),
)
_EVENTS = (
    "boiler2 feed pump P2 started",
    "boiler2 burner flame signal restored after one retry",
    "cnc-01 coolant level low, program O2318 paused",
    "cnc-01 tool T07 changed, life counter reset",
    "cnc-02 door interlock opened by operator",
    "compressor1 changed over to standby filter",
    "conveyor3 stopped by photo cell B12, restarted after 40 s",
    "chiller fan 2 tripped on overload, fan 3 took over",
    "press4 pressure test passed, cycle released",
    "mixer agitator speed ramped down, batch discharged",
)
_MEASURED_SHARE = 0.8
_MEAN_GAP_S = 60.0
_DAY_S = 24 * 3600
_PIECE_LINES = 256  # tokenised at a time


def lines(seed: int) -> Iterator[str]:
    """Without end; the same for the same seed. Only the time of day goes on, and it comes round."""
    draw = random.Random(seed)
    clock = draw.randrange(_DAY_S)
    while True:
        clock = (clock + 1 + int(draw.expovariate(1 / _MEAN_GAP_S))) % _DAY_S
        at = f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
        text = _measurement(draw) if draw.random() < _MEASURED_SHARE else draw.choice(_EVENTS)
        yield f"{at} {text}\n"


def _measurement(draw: random.Random) -> str:
    machine, quantity, unit, usual, spread, limit = draw.choice(_MEASURED)
    value = draw.gauss(usual, spread)
    digits = 2 if limit < 10 else 1 if limit < 100 else 0
    over = f", limit {limit:.{digits}f} {unit}" if value > limit else ""
    return f"{machine} {quantity} {value:.{digits}f} {unit}{over}"


def log_tokens(encode: Callable[[str], list[int]], count: int, seed: int) -> NDArray[np.int32]:
    """The first `count` tokens of the log: [count] int32."""
    tokens = np.empty(count, np.int32)
    source, filled = lines(seed), 0
    while filled < count:
        piece = encode("".join(next(source) for _ in range(_PIECE_LINES)))[: count - filled]
        tokens[filled : filled + len(piece)] = piece
        filled += len(piece)
    return tokens
