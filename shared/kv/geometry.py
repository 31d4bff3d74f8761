"""What a block of the pool holds: 16 positions, one plane per model.

block │ plane 0: the target's K/V │ plane 1: the draft's K/V (only with a draft model) │
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.errors import RinglineError
from shared.config.settings import KvFormat
from shared.native import BLOCK_TOKENS, KvPool

TARGET_PLANE = 0
DRAFT_PLANE = 1
_MOST_BLOCKS = 1 << 26  # that the allocator manages: more than any machine's memory

Plane = tuple[int, int, int]  # layers, key/value heads, head dimension


def describe_plane(plane: Plane, kv: KvFormat) -> str:
    """A plane as it is compared in `Hello.plane`, e.g. '28 layers x 2 heads x 128, f16'."""
    layers, heads, head_dim = plane
    return f"{layers} layers x {heads} heads x {head_dim}, {kv}"


@dataclass(frozen=True)
class KvGeometry:
    """Size, planes and number format of kv.pool."""

    planes: tuple[Plane, ...]
    n_blocks: int
    kv: KvFormat

    @classmethod
    def of(cls, planes: tuple[Plane, ...], pool_bytes: int, kv: KvFormat) -> KvGeometry:
        """As many blocks as `pool_bytes` holds. RinglineError for planes the engine cannot use."""
        try:
            return cls(planes, min(pool_bytes // KvPool.block_bytes(planes, kv), _MOST_BLOCKS), kv)
        except ValueError as error:
            raise RinglineError(f"{error}: set models.target and models.draft to other models") from None

    @property
    def block_bytes(self) -> int:
        return KvPool.block_bytes(self.planes, self.kv)

    @property
    def pool_bytes(self) -> int:
        return self.n_blocks * self.block_bytes

    @property
    def tokens(self) -> int:
        """Positions that fit in the pool."""
        return self.n_blocks * BLOCK_TOKENS


def blocks_of(tokens: int) -> int:
    """Blocks that `tokens` consecutive positions from a block's start occupy."""
    return -(-tokens // BLOCK_TOKENS)
