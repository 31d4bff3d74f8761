"""What blocks cost in C++: nanoseconds of the allocator, and the share of an attention call that goes into
finding the blocks of 4,096 positions through the table. bench/blocks.cpp is compiled for this machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from shared.config.errors import RinglineError
from shared.model.open import ModelInfo

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "shared" / "native"
FLAGS = (  # those of shared/native/CMakeLists.txt, with the instruction set of this machine
    *("-std=c++20", "-O3", "-DNDEBUG", "-march=native", "-DRINGLINE_ISA=bench", f"-I{NATIVE}"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
SOURCES = (
    ROOT / "bench" / "blocks.cpp",
    *(NATIVE / "core" / f"{name}.cpp" for name in ("block_allocator", "kv_pool", "sequence_view")),
    *(NATIVE / "core" / f"{name}.cpp" for name in ("node_tree", "context_segments")),
    NATIVE / "kernels" / "attention.cpp",
)
COMPILE_S, RUN_S = 300.0, 300.0


def run(info: ModelInfo) -> dict[str, float]:
    """The program's figures, for the model's plane. RinglineError when there is no compiler, or it fails."""
    layers, heads, head_dim = info.plane
    group = int(info.spec["n_head"]) // heads
    with tempfile.TemporaryDirectory(prefix="ringline-bench-") as directory:
        program = str(Path(directory) / "blocks")
        compiler = os.environ.get("CXX", "c++")
        _call([compiler, *FLAGS, *map(str, SOURCES), "-o", program], COMPILE_S)
        return read(_call([program, *map(str, (layers, heads, head_dim, group))], RUN_S))


def _call(command: list[str], timeout_s: float) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout_s).stdout
    except FileNotFoundError:
        raise RinglineError(f"blocks needs the C++20 compiler {command[0]}: set CXX") from None
    except subprocess.TimeoutExpired:
        raise RinglineError(f"{command[0]} took more than {timeout_s:.0f} s") from None
    except subprocess.CalledProcessError as error:
        why = next(iter(error.stderr.splitlines()), f"exit code {error.returncode}")
        raise RinglineError(f"{command[0]} failed: {why}") from None


def read(output: str) -> dict[str, float]:
    """Lines of a name and a number."""
    return {name: float(value) for name, value in (line.split() for line in output.splitlines())}


def table(found: dict[str, Any]) -> str:
    return (
        f"a block: taken {found['allocate_ns']:.1f} ns, given back {found['free_ns']:.1f} ns; "
        f"exchanged in a full pool of 2,048: {found['exchange_full_ns']:.1f} ns\n"
        f"attention over 4,096 positions: {found['attention_call_ns'] / 1e3:.1f} us a call, of it "
        f"{found['addressing_ns'] / 1e3:.2f} us ({found['addressing_share']:.2%}) for the block table; "
        f"scattered blocks against consecutive ones: {found['scattered_ratio']:.3f}"
    )
