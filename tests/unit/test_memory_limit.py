"""The memory limit of bench.budget: control groups of both versions, and what is left without them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.memory_limit import AddressSpace, ControlGroup, memory_limit


def test_a_control_group_of_version_1_is_limited_and_read(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.usage_in_bytes").touch()
    group = memory_limit(100, tmp_path)
    assert isinstance(group, ControlGroup)
    assert (group.directory / "memory.limit_in_bytes").read_text() == str(100 << 20)
    (group.directory / "memory.max_usage_in_bytes").write_text(f"{3 << 20}\n")
    (group.directory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (group.directory / "memory.stat").write_text(f"rss 7\ntotal_rss {1 << 20}\ntotal_shmem {1 << 20}\n")
    assert (group.kind, group.peak_mb(), group.killed(), group.pinned_mb()) == ("cgroup v1", 3, 2, 2)


def test_a_control_group_of_version_2_is_limited_and_read(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    group = memory_limit(100, tmp_path)
    assert isinstance(group, ControlGroup)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (group.directory / "memory.max").read_text() == str(100 << 20)
    (group.directory / "memory.peak").write_text(f"{3 << 20}\n")
    (group.directory / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    (group.directory / "memory.stat").write_text(f"anon {1 << 20}\nfile 9\nshmem {1 << 20}\n")
    assert (group.kind, group.peak_mb(), group.killed(), group.pinned_mb()) == ("cgroup v2", 3, 0, 2)


def test_a_process_starts_inside_its_group(tmp_path: Path) -> None:
    group = ControlGroup(tmp_path, 2)
    said = subprocess.run(group.wrap(["echo", "a b"]), capture_output=True, text=True, check=True, timeout=20)
    assert said.stdout == "a b\n"
    assert int((tmp_path / "cgroup.procs").read_text()) > 0


def test_without_control_groups_each_process_may_map_no_more_than_the_budget(tmp_path: Path) -> None:
    limit = memory_limit(64, tmp_path)
    assert isinstance(limit, AddressSpace)
    command = limit.wrap(["sh", "-c", "ulimit -v"])
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    assert said.stdout == f"{64 << 10}\n"
