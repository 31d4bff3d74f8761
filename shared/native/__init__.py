"""The C++20 core: kernels, KV cache, block pool (one extension module)."""

from shared.native._native import (
    BLOCK_TOKENS,
    PACK_LAYOUT,
    BlockAllocator,
    KvPool,
    Model,
    Scratch,
    SequenceView,
    dequantize_rows,
    digest,
    isa_names,
    matmul,
    pack,
    packed_bytes,
    read_bandwidth,
)

__all__ = [
    "BLOCK_TOKENS",
    "PACK_LAYOUT",
    "BlockAllocator",
    "KvPool",
    "Model",
    "Scratch",
    "SequenceView",
    "dequantize_rows",
    "digest",
    "isa_names",
    "matmul",
    "pack",
    "packed_bytes",
    "read_bandwidth",
]
