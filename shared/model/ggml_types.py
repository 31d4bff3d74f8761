"""GGUF's tensor types: their blocks, and which of them there are kernels for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    name: str
    block: int  # values in one block
    nbytes: int  # bytes of one block


F32 = 0

# The ones the kernels read (`shared/native/core/matrix.hpp`); numbers are GGUF's.
SUPPORTED: dict[int, TensorType] = {
    F32: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    30: TensorType("BF16", 1, 2),
}

# Known by name only, so that a refusal can say what the file holds.
_OTHER_NAMES: dict[int, str] = {
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}


def type_name(number: int) -> str:
    """'Q4_K' for 12; 'number 99' for a type nobody knows."""
    known = SUPPORTED.get(number)
    return known.name if known else _OTHER_NAMES.get(number, f"number {number}")


def supported_names() -> str:
    return ", ".join(kind.name for kind in SUPPORTED.values())
