"""A counter-based generator: what is drawn at a position does not depend on what was drawn before.

BLAKE2b of (seed, position, index) gives 64 bits; the upper 53 are the fraction of a double in
[0, 1). So any process can draw for any position, in any order, on any machine, and draws the same.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

_COUNTER = struct.Struct("<QQI")


def uniform(seed: int, position: int, index: int = 0) -> float:
    """The `index`th number in [0, 1) for a position of a sequence; seed and position below 2^64."""
    digest = blake2b(_COUNTER.pack(seed, position, index), digest_size=8, person=b"ringline").digest()
    return float(int.from_bytes(digest, "little") >> 11) * 2.0**-53


class Uniforms:
    """The numbers of one position, one after the other."""

    __slots__ = ("_index", "_position", "_seed")

    def __init__(self, seed: int, position: int) -> None:
        self._seed = seed
        self._position = position
        self._index = 0

    def __call__(self) -> float:
        value = uniform(self._seed, self._position, self._index)
        self._index += 1
        return value
