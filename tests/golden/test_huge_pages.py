"""Weights are mapped in huge pages wherever the file system has them, whatever was left in the page cache."""

import mmap
import os
import re
import shutil
from pathlib import Path

import pytest

from shared.config.settings import Paths
from shared.model.open import open_model

HUGE_PAGE = 1 << 21


@pytest.fixture
def own_copy(data_dir: Path, tmp_path: Path) -> Paths:
    """A weight cache that nobody else has mapped, so that its pages can be dropped."""
    cache = open_model("smollm2-135m", Paths(data=data_dir)).path
    (tmp_path / "cache").mkdir(mode=0o700)
    shutil.copyfile(cache, tmp_path / "cache" / cache.name)
    (tmp_path / "cache" / cache.name).chmod(0o600)
    (tmp_path / "models").symlink_to(data_dir / "models")
    return Paths(data=tmp_path)


def huge_bytes_of_weights(paths: Paths) -> int:
    """How many bytes of the loaded model are in huge pages; it is closed again."""
    file = open_model("smollm2-135m", paths)
    model = file.load(1)
    of_file = Path("/proc/self/smaps").read_text().split(f"{file.path}\n")[1]
    del model
    found = re.search(r"FilePmdMapped: +(\d+) kB", of_file)
    return int(found[1]) * 1024 if found else 0


def drop_pages(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def leave_small_pages(path: Path) -> None:
    """As after a time under memory pressure: of three quarters of the huge pages a small one is left."""
    drop_pages(path)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for at in range(0, path.stat().st_size - HUGE_PAGE, HUGE_PAGE):
            if at // HUGE_PAGE % 4:
                os.pread(file.fileno(), mmap.PAGESIZE, at + 5 * mmap.PAGESIZE)


def test_what_the_page_cache_kept_costs_no_huge_pages(own_copy: Paths) -> None:
    path = open_model("smollm2-135m", own_copy).path
    drop_pages(path)
    whole = huge_bytes_of_weights(own_copy)
    leave_small_pages(path)
    assert huge_bytes_of_weights(own_copy) >= 0.9 * whole
    assert open_model("smollm2-135m", own_copy).path == path, "the weights were packed again"
