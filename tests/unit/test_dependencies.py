"""What is imported is what is asked for, and modules do not import each other in circles."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMPORT_NAMES = {"pyzmq": "zmq", "paho-mqtt": "paho", "rknn-toolkit-lite2": "rknnlite"}


def imports(path: Path) -> Iterator[str]:
    """Modules that are imported anywhere in the file, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_name(requirement: str) -> str:
    name = re.split(r"[<>=;\[ ]", requirement)[0]
    return IMPORT_NAMES.get(name, name.replace("-", "_"))


def test_what_is_required_is_used_and_what_is_used_is_required() -> None:
    """A package that only tests need is no weight on a gateway."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = project["dependencies"] + project["optional-dependencies"]["demo"]
    files = [path for folder in ("services", "shared") for path in (ROOT / folder).rglob("*.py")]
    used = {name.split(".")[0] for path in files for name in imports(path)}
    everywhere = {import_name(requirement) for requirement in required if ";" not in requirement}
    assert used - sys.stdlib_module_names - {"services", "shared"} <= set(map(import_name, required))
    assert everywhere <= used


def test_no_shared_module_imports_itself_by_way_of_others() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in (ROOT / "shared").rglob("*.py")
        if path.name != "__init__.py"
    }
    graph = {name: {other for other in imports(path) if other in paths} for name, path in paths.items()}
    TopologicalSorter(graph).prepare()
