"""The CPUs of a board with two kinds of them, found by capacity in a sysfs tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from shared.config.cpus import CpuPlan, plan_cpus, plan_for_this_machine, read_capacities
from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.settings import Draft, Settings, Verifier

RK3588 = {0: 530, 1: 530, 2: 530, 3: 530, 4: 1024, 5: 1024, 6: 1024, 7: 1024}
RK3399 = {0: 485, 1: 485, 2: 485, 3: 485, 4: 1024, 5: 1024}
PC = dict.fromkeys(range(4), 1024)


def sysfs(root: Path, capacities: Mapping[int, int]) -> Path:
    for cpu, capacity in capacities.items():
        directory = root / f"devices/system/cpu/cpu{cpu}"
        directory.mkdir(parents=True)
        (directory / "cpu_capacity").write_text(f"{capacity}\n")
    return root


def plan(capacities: Mapping[int, int], verifier: int, draft: int) -> CpuPlan:
    return plan_cpus(Verifier(threads=verifier), Draft(threads=draft), capacities)


def test_capacities_are_read_for_the_cpus_of_the_cpuset_only(tmp_path: Path) -> None:
    assert read_capacities(sysfs(tmp_path, RK3588), {6, 3, 5}) == {3: 530, 5: 1024, 6: 1024}


def test_without_capacities_all_cpus_are_alike(tmp_path: Path) -> None:
    assert read_capacities(tmp_path, {0, 1}) == {0: 1024, 1: 1024}


def test_an_unreadable_capacity_makes_all_cpus_alike(tmp_path: Path) -> None:
    root = sysfs(tmp_path, RK3588)
    (root / "devices/system/cpu/cpu2/cpu_capacity").write_text("")
    assert set(read_capacities(root, RK3588).values()) == {1024}


@pytest.mark.parametrize(
    ("capacities", "verifier", "draft", "expected"),
    [
        (RK3588, 4, 1, CpuPlan((4, 5, 6, 7), (0,))),
        (RK3588, 2, 1, CpuPlan((4, 5), (6,))),
        (RK3588, 3, 2, CpuPlan((4, 5, 6), (7, 0))),
        (RK3399, 2, 2, CpuPlan((4, 5), (0, 1))),
        (RK3399, 6, 1, CpuPlan((4, 5, 0, 1, 2, 3), ())),
        ({2: 530, 3: 530, 5: 1024}, 1, 1, CpuPlan((5,), (2,))),
        ({4: 1024, 5: 1024}, 1, 1, CpuPlan((), ())),
        (PC, 2, 1, CpuPlan((), ())),
    ],
)
def test_the_verifier_gets_the_fastest_cpus_and_the_draft_others(
    capacities: dict[int, int], verifier: int, draft: int, expected: CpuPlan
) -> None:
    assert plan(capacities, verifier, draft) == expected


def test_cpus_that_the_settings_name_are_used_as_they_are() -> None:
    named = plan_cpus(Verifier(affinity=(0, 1)), Draft(affinity=(7,)), RK3588)
    assert named == CpuPlan((0, 1), (7,))


def test_the_draft_avoids_the_cpus_named_for_the_verifier() -> None:
    assert plan_cpus(Verifier(affinity=(4, 6)), Draft(threads=1), RK3588) == CpuPlan((4, 6), (5,))


def test_an_empty_list_leaves_both_to_the_system() -> None:
    assert plan_cpus(Verifier(affinity=()), Draft(), RK3588) == CpuPlan((), ())


def test_the_plan_for_this_machine_can_be_used_here() -> None:
    found = plan_for_this_machine(Settings())
    assert len(found.verifier) in (0, Settings().verifier.threads)


@pytest.mark.parametrize("value", ['"little"', "3", "[-1]", '["0"]', "[true]"])
def test_another_affinity_is_refused_in_one_line(tmp_path: Path, value: str) -> None:
    file = tmp_path / "ringline.toml"
    file.write_text(f"[verifier]\naffinity = {value}\n")
    with pytest.raises(RinglineError, match=r':2: "verifier.affinity" = .*must be "auto" or a list of CPU'):
        load_settings(file)
