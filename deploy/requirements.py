"""Prints what pyproject.toml asks for (to build, to run, to develop), one requirement a line."""

from __future__ import annotations

import tomllib
from pathlib import Path


def requirements(pyproject: Path) -> list[str]:
    """Every requirement but the project's references to itself."""
    data = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project = data["project"]
    groups = project["optional-dependencies"].values()
    wanted = [*data["build-system"]["requires"], *project["dependencies"], *(r for g in groups for r in g)]
    return [requirement for requirement in wanted if not requirement.startswith(f"{project['name']}[")]


if __name__ == "__main__":
    print("\n".join(requirements(Path(__file__).resolve().parents[1] / "pyproject.toml")))
