"""Is there an NPU that drafts could run on? Reads what the board says about itself."""

from __future__ import annotations

from pathlib import Path

_CHIPS = ("rk3562", "rk3566", "rk3568", "rk3576", "rk3588")
_MAX_BYTES = 4096


def describe_npu(root: Path = Path("/")) -> str:
    """One line: the NPU's chip, or why there is none."""
    file = root / "proc/device-tree/compatible"
    try:
        with file.open("rb") as stream:
            compatible = stream.read(_MAX_BYTES).decode("ascii", "replace").replace("\0", " ").strip()
    except OSError:
        return f"no NPU on this machine: {file} does not exist, so this is not an RK35xx board"
    chip = next((chip for chip in _CHIPS if chip in compatible), None)
    if chip is None:
        return f"no NPU on this machine: the board is {compatible!r}, known are {', '.join(_CHIPS)}"
    return f"NPU of {chip}"
