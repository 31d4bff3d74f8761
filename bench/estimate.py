"""What an RK3588 should do, estimated without one: the hottest loops for its Cortex-A76, through llvm-mca.

    python -m bench.estimate [--cxx aarch64-linux-gnu-g++] [--json]

The matrix kernels are cross-compiled with the build's own flags; their inner loops, one group of 32 columns,
go to llvm-mca. It knows ports, latencies and the reorder buffer, but no caches, no memory and no branch
that is mispredicted: the cycles are those of weights that arrive in time. A pass of n rows then takes, for
each tensor type, the longer of two times: reading its weights at the memory's bandwidth, and computing n
rows on all cores. Attention and everything else that is not a matrix product is left out.

LLVM describes the Cortex-A76 by the older, narrower Cortex-A57 (three instructions and one load a cycle), so
that `cortex-a76` is pessimistic. `neoverse-n1` is the same core made for servers and has its own description
from LLVM 16 on; it is taken where it is there, with the four instructions a cycle that the core decodes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.command import print_report
from shared.config.errors import RinglineError

NATIVE = Path(__file__).parent.parent / "shared" / "native"
FLAGS = (  # those of shared/native/CMakeLists.txt
    *("-x", "c++", "-std=c++20", "-O3", "-DNDEBUG", "-fPIC"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-schedule-insns"),
    *("-march=armv8.2-a+dotprod+fp16", "-DRINGLINE_ISA=dotprod", f"-I{NATIVE}"),
)
MODELS = {"cortex-a76": (14, ()), "neoverse-n1": (16, ("-dispatch=4",))}  # from which LLVM on; options
ITERATIONS = 200
COST_ROWS = 16
HOTTEST = (("Q4_K", 1), ("Q4_K", 8), ("Q6_K", 1))

# Matrices of Qwen2.5-Coder-1.5B Q4_K_M that a token reads: weights by type, with the packed bytes of a weight
# (core/layout.hpp; a tile of 256 columns is a header and 8 groups for 16 x 256 weights).
WEIGHTS = {"Q4_K": 1_112_014_848, "Q6_K": 431_554_560}
BYTES = {"Q4_K": (320 + 8 * 256) / 4096, "Q6_K": (320 + 8 * 384) / 4096}
GROUP_MACS = 16 * 32  # of one row
DOT_MACS = 16  # of one sdot


@dataclass(frozen=True)
class Board:
    cores: int = 4
    ghz: float = 2.2
    gb_per_s: float = 17.0


@dataclass(frozen=True)
class Loop:
    """The inner loop of a kernel for `rows` rows: its instructions, and the cycles of one group of a tile."""

    kind: str
    rows: int
    instructions: int
    dots: int
    stack: int  # instructions that touch the stack: what did not fit into registers
    cycles: dict[str, float]  # of 16 weight rows x 32 columns, by core model

    def gmac_per_s(self, model: str, ghz: float) -> float:
        return self.rows * GROUP_MACS * ghz / self.cycles[model]


def main() -> int:
    return print_report("bench.estimate", _options(), lambda options: estimate(options.cxx, Board()), _text)


def estimate(cxx: str, board: Board) -> dict[str, Any]:
    """Cycles, GMAC/s, tokens/s and cost curve; RinglineError without a cross compiler or llvm-mca."""
    tool, version = _find_mca()
    models = [name for name, (since, _) in MODELS.items() if version >= since]
    most = _most_rows()
    loops = {kind: [_loop(cxx, tool, models, kind, rows) for rows in range(1, most + 1)] for kind in WEIGHTS}
    cost = {model: _costs(loops, model, board) for model in models}
    return {
        "llvm": version,
        "hottest": [_row(loops[kind][rows - 1], board) for kind, rows in HOTTEST],
        "memory_tokens_per_s": board.gb_per_s * 1e9 / sum(WEIGHTS[kind] * BYTES[kind] for kind in WEIGHTS),
        "compute_tokens_per_s": {m: 1 / _compute_s(loops, m, board, 1) for m in models},
        "tokens_per_s": {model: 1 / cost[model][0] for model in models},
        "v": {model: [time / cost[model][0] for time in cost[model]] for model in models},
    }


def _costs(loops: dict[str, list[Loop]], model: str, board: Board) -> list[float]:
    """Seconds of a pass of 1, 2, ... rows."""
    return [pass_seconds(loops, model, board, rows) for rows in range(1, COST_ROWS + 1)]


def pass_seconds(loops: dict[str, list[Loop]], model: str, board: Board, rows: int) -> float:
    return sum(
        max(WEIGHTS[kind] * BYTES[kind] / (board.gb_per_s * 1e9), _kind_s(loops[kind], model, board, rows))
        for kind in WEIGHTS
    )


def _compute_s(loops: dict[str, list[Loop]], model: str, board: Board, rows: int) -> float:
    return sum(_kind_s(loops[kind], model, board, rows) for kind in WEIGHTS)


def _kind_s(loops: list[Loop], model: str, board: Board, rows: int) -> float:
    """Seconds that all cores compute: rows go in blocks as kernels/matmul.cpp splits them."""
    blocks = -(-rows // len(loops))
    sizes = [(b + 1) * rows // blocks - b * rows // blocks for b in range(blocks)]
    cycles = sum(loops[size - 1].cycles[model] for size in sizes)
    return WEIGHTS[loops[0].kind] / GROUP_MACS * cycles / (board.cores * board.ghz * 1e9)


def _loop(cxx: str, tool: str, models: list[str], kind: str, rows: int) -> Loop:
    body = inner_loop(_compile(cxx, kind, rows))
    dots = sum(line.startswith("sdot") for line in body)
    repeats = rows * GROUP_MACS / (dots * DOT_MACS)  # the loop computes some of the tile's 16 weight rows
    return Loop(
        kind=kind,
        rows=rows,
        instructions=len(body),
        dots=dots,
        stack=sum("[sp" in line for line in body),
        cycles={model: repeats * _cycles(tool, model, body) for model in models},
    )


def inner_loop(assembly: str) -> list[str]:
    """Instructions of the loop with the most dot products, the shortest one of those."""
    lines = [line.strip().replace("\t", " ") for line in assembly.splitlines()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if re.fullmatch(r"\.L\d+:", line)}
    loops = []
    for at, line in enumerate(lines):
        jump = re.match(r"(?:b|cb|tb)\S* (?:.*, ?)?(\.L\d+)$", line)
        if jump and labels.get(jump[1], at) < at:
            loops.append([code for code in lines[labels[jump[1]] : at + 1] if code and code[0] != "."])
    return max(loops, key=lambda body: (sum(code.startswith("sdot") for code in body), -len(body)))


def _compile(cxx: str, kind: str, rows: int) -> str:
    arguments = "const uint8_t*, const PackedMatrix&, const Activations&, int64_t, bool, float*"
    source = (
        '#include "kernels/tile_quantised.hpp"\n'
        "namespace ringline::dotprod {\n"
        f"template void quantised_tile<TensorType::k{kind}, {rows}>({arguments});\n"
        "}\n"
    )
    return _run([cxx, *FLAGS, "-S", "-o", "-", "-"], source)


def _most_rows() -> int:
    lanes = (NATIVE / "kernels" / "lanes" / "dotprod.hpp").read_text()
    found = re.search(r"kMaxRows = (\d+);", lanes)
    assert found is not None
    return int(found[1])


def _cycles(tool: str, model: str, body: list[str]) -> float:
    command = [tool, "-mtriple=aarch64", f"-mcpu={model}", "-mattr=+dotprod,+fullfp16", *MODELS[model][1]]
    views = [f"-iterations={ITERATIONS}", "-all-views=false", "-summary-view"]
    summary = _run(command + views, "\n".join(body))
    found = re.search(r"Total Cycles:\s+(\d+)", summary)
    assert found is not None, summary
    return int(found[1]) / ITERATIONS


def _find_mca() -> tuple[str, int]:
    """The newest llvm-mca and its major version."""
    for version in range(30, 13, -1):
        if path := shutil.which(f"llvm-mca-{version}"):
            return path, version
    path = shutil.which("llvm-mca")
    if path is None:
        raise RinglineError("the estimate needs llvm-mca: on Debian run apt-get install llvm-19")
    found = re.search(r"version (\d+)", _run([path, "--version"], ""))
    return path, int(found[1]) if found else 0


def _run(command: list[str], text: str) -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=300)
    except FileNotFoundError:
        package = "g++-aarch64-linux-gnu"
        raise RinglineError(f"{command[0]} is missing: on Debian run apt-get install {package}") from None
    except subprocess.CalledProcessError as error:
        raise RinglineError(f"{command[0]} failed: {error.stderr.strip()[:500]}") from None
    return done.stdout


def _row(loop: Loop, board: Board) -> dict[str, Any]:
    rates = {model: loop.gmac_per_s(model, board.ghz) for model in loop.cycles}
    return {
        "kind": loop.kind,
        "rows": loop.rows,
        "instructions": loop.instructions,
        "sdot": loop.dots,
        "stack": loop.stack,
        "cycles": loop.cycles,
        "gmac_per_s_core": rates,
        "gmac_per_s": {model: board.cores * rate for model, rate in rates.items()},
    }


def _text(report: dict[str, Any]) -> str:
    out = [f"llvm-mca {report['llvm']}; cycles of 16 weight rows x 32 columns"]
    for loop in report["hottest"]:
        counts = f"{loop['instructions']} instructions, {loop['sdot']} sdot, {loop['stack']} on the stack"
        out.append(f"{loop['kind']} {loop['rows']} row(s): {counts}")
        out += [
            f"    {model:12} {cycles:6.1f} cycles  {loop['gmac_per_s_core'][model]:5.1f} GMAC/s a core"
            f"  {loop['gmac_per_s'][model]:6.1f} on 4"
            for model, cycles in loop["cycles"].items()
        ]
    out.append(f"memory allows {report['memory_tokens_per_s']:.1f} tokens/s")
    for model, rate in report["tokens_per_s"].items():
        compute = report["compute_tokens_per_s"][model]
        out.append(f"{model}: computing allows {compute:.1f} tokens/s; decode {rate:.1f} tokens/s")
        out.append(f"    v(1..{COST_ROWS}) = " + " ".join(f"{v:.2f}" for v in report["v"][model]))
    return "\n".join(out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cxx", default="aarch64-linux-gnu-g++", help="the cross compiler")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
