"""kv.pool and kv.ctl: made, found again, replaced, refused, removed."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from shared.config.errors import RinglineError
from shared.config.settings import KvFormat
from shared.kv import ControlSpec, KvGeometry, attach, open_segment, remove_unowned
from shared.kv.layout import PAGE

PLANES = ((2, 1, 32), (1, 1, 32))


def spec_of(
    n_blocks: int = 16,
    planes: tuple[tuple[int, int, int], ...] = PLANES,
    kv: KvFormat = "f16",
    **fields: object,
) -> ControlSpec:
    values: dict[str, object] = {
        "planes": planes,
        "models": ("a", "b")[: len(planes)],
        "n_blocks": n_blocks,
        "kv": kv,
        "block_bytes": KvGeometry(planes, n_blocks, kv).block_bytes,
        "chunk": 64,
        "step": 8,
        "record_slots": 2,
        "record_blocks": 8,
        "record_tokens": 64,
        "record_bytes": 5000,
    }
    return ControlSpec.model_validate({**values, **fields})


def leave_behind(directory: Path, spec: ControlSpec) -> int:
    """Files as a killed owner leaves them; returns their generation."""
    code = (
        "import sys, os; from pathlib import Path; from shared.kv import open_segment, ControlSpec;"
        "s = open_segment(Path(sys.argv[1]), ControlSpec.model_validate_json(sys.argv[2]));"
        "s.records[:4] = b'left'; print(s.generation, flush=True); os.kill(os.getpid(), 9)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(directory), spec.model_dump_json()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == -9, child.stderr
    return int(child.stdout)


def test_the_files_are_private_and_gone_after_a_clean_stop(tmp_path: Path) -> None:
    directory = tmp_path / "shm"
    segment = open_segment(directory, spec_of())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    sizes = {
        path.name: (stat.S_IMODE(path.stat().st_mode), path.stat().st_size) for path in directory.iterdir()
    }
    assert sizes["kv.pool"] == (0o600, spec_of().geometry.pool_bytes)
    assert sizes["kv.ctl"] == (0o600, spec_of().control_bytes)
    segment.close()
    assert list(directory.iterdir()) == []


def test_every_page_is_there_from_the_start(tmp_path: Path) -> None:
    segment = open_segment(tmp_path / "shm", spec_of())
    for path in (tmp_path / "shm").iterdir():
        assert path.stat().st_blocks * 512 >= path.stat().st_size
    segment.close()


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    segment = open_segment(tmp_path / "shm", spec_of())
    with pytest.raises(RinglineError, match="another context service that is running"):
        open_segment(tmp_path / "shm", spec_of())
    segment.close()
    open_segment(tmp_path / "shm", spec_of()).close()


def test_a_killed_owners_files_are_found_again(tmp_path: Path) -> None:
    generation = leave_behind(tmp_path / "shm", spec_of())
    segment = open_segment(tmp_path / "shm", spec_of())
    assert segment.recovered
    assert segment.generation == generation
    assert bytes(segment.records[:4]) == b"left"
    segment.close()


def test_what_nobody_needs_any_more_is_removed_unless_it_is_owned(tmp_path: Path) -> None:
    directory = tmp_path / "shm"
    remove_unowned(directory)
    leave_behind(directory, spec_of())
    segment = open_segment(directory, spec_of())
    remove_unowned(directory)
    assert all(file.exists() for file in segment.files)
    segment.close()
    leave_behind(directory, spec_of())
    remove_unowned(directory)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (spec_of(n_blocks=17), "n_blocks 16, here 17"),
        (spec_of(models=("a", "c")), "models"),
        (spec_of(chunk=32), "chunk 64, here 32"),
        (spec_of(kv="int8"), "kv f16, here int8"),
    ],
)
def test_a_leftover_of_another_geometry_is_replaced_with_one_line(
    tmp_path: Path, other: ControlSpec, says: str
) -> None:
    leave_behind(tmp_path / "shm", spec_of())
    with structlog.testing.capture_logs() as logs:
        segment = open_segment(tmp_path / "shm", other)
    assert not segment.recovered
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert says in logs[0]["why"]
    assert not any(segment.records)
    segment.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: os.truncate(d / "kv.pool", 4096),
        lambda d: os.truncate(d / "kv.ctl", 10),
        lambda d: (d / "kv.pool").unlink(),
        lambda d: (d / "kv.ctl").unlink(),
        lambda d: (d / "kv.ctl").write_bytes(bytes(9000)),
        lambda d: _patch(d / "kv.ctl", 8, b"\0\0\0\0"),
        lambda d: _patch(d / "kv.ctl", 8, b"\x63\0\0\0"),
    ],
)
def test_a_damaged_leftover_is_replaced(tmp_path: Path, damage: object) -> None:
    leave_behind(tmp_path / "shm", spec_of())
    damage(tmp_path / "shm")  # type: ignore[operator]
    segment = open_segment(tmp_path / "shm", spec_of())
    assert not segment.recovered
    segment.close()


def _patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_flipped_bytes_in_the_header_are_replaced_and_never_a_crash(tmp_path: Path) -> None:
    random_bytes = random.Random(5)
    generation = leave_behind(tmp_path / "shm", spec_of())
    good = (tmp_path / "shm" / "kv.ctl").read_bytes()
    for _ in range(100):
        page = bytearray(good)
        for _ in range(random_bytes.randrange(1, 5)):
            page[random_bytes.randrange(400)] ^= random_bytes.randrange(1, 256)
        (tmp_path / "shm").mkdir(mode=0o700, exist_ok=True)
        (tmp_path / "shm" / "kv.ctl").write_bytes(page)
        (tmp_path / "shm" / "kv.pool").write_bytes(bytes(spec_of().geometry.pool_bytes))
        segment = open_segment(tmp_path / "shm", spec_of())
        assert segment.generation == generation or not segment.recovered
        segment.close()


def test_a_pool_larger_than_the_free_memory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(RinglineError) as caught:
        open_segment(tmp_path / "shm", spec_of(n_blocks=1 << 26))
    text = str(caught.value)
    assert "the pool needs" in text
    assert "MB free" in text
    assert "context.pool_mb" in text
    assert "\n" not in text
    assert list((tmp_path / "shm").iterdir()) == []


def test_memory_that_vanishes_between_the_check_and_the_allocation_is_the_same_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RinglineError, match=r"MB free: lower context\.pool_mb"):
        open_segment(tmp_path / "shm", spec_of())
    assert list((tmp_path / "shm").iterdir()) == []


def test_a_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(RinglineError, match="mode 0700"):
        open_segment(tmp_path, spec_of())
    assert list(tmp_path.iterdir()) == []


def test_attaching_maps_the_planes_and_tells_the_generation(tmp_path: Path) -> None:
    segment = open_segment(tmp_path / "shm", spec_of())
    attached = attach(tmp_path / "shm", "verifier", PLANES[0], "f16")
    assert attached.generation == segment.generation
    assert attached.pool.n_blocks == 16
    assert attach(tmp_path / "shm", "draft", PLANES[1], "f16").pool.n_blocks == 16
    segment.close()


def test_attaching_with_another_model_says_both_planes(tmp_path: Path) -> None:
    segment = open_segment(tmp_path / "shm", spec_of(planes=PLANES[:1]))
    with pytest.raises(RinglineError, match=r"2 layers x 1 heads x 32.*it needs 9 layers"):
        attach(tmp_path / "shm", "verifier", (9, 1, 32), "f16")
    with pytest.raises(RinglineError, match="holds nothing for the draft"):
        attach(tmp_path / "shm", "draft", PLANES[1], "f16")
    segment.close()


@pytest.mark.parametrize(("there", "mine"), [("f16", "int8"), ("int8", "f16")])
def test_attaching_with_another_format_says_both(tmp_path: Path, there: KvFormat, mine: KvFormat) -> None:
    segment = open_segment(tmp_path / "shm", spec_of(kv=there))
    for role, plane in (("verifier", PLANES[0]), ("draft", PLANES[1])):
        with pytest.raises(RinglineError, match=f", {there} for the {role}, it needs .*, {mine}:"):
            attach(tmp_path / "shm", role, plane, mine)  # type: ignore[arg-type]
        assert attach(tmp_path / "shm", role, plane, there).pool.n_blocks == 16  # type: ignore[arg-type]
    segment.close()


def test_attaching_to_nothing_or_to_garbage_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RinglineError, match="is context running"):
        attach(tmp_path, "verifier", PLANES[0], "f16")
    (tmp_path / "kv.ctl").write_bytes(random.Random(1).randbytes(PAGE))
    with pytest.raises(RinglineError, match="magic"):
        attach(tmp_path, "verifier", PLANES[0], "f16")


def test_a_writer_is_known_as_long_as_it_maps_the_pool(tmp_path: Path) -> None:
    """The lock goes with the mapping, not with the descriptor, and with the process however it dies."""
    segment = open_segment(tmp_path / "shm", spec_of())
    code = (
        "import sys; from pathlib import Path; from shared.kv import attach;"
        "a = attach(Path(sys.argv[1]), 'verifier', (2, 1, 32), 'f16'); print('attached', flush=True);"
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "shm")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "attached\n"
    mine = attach(tmp_path / "shm", "draft", PLANES[1], "f16")
    assert sorted(segment.writers()) == sorted([("verifier", child.pid), ("draft", os.getpid())])
    assert segment.is_writing(("verifier", child.pid))
    child.kill()
    child.communicate()
    assert segment.writers() == [("draft", os.getpid())]
    assert not segment.is_writing(("verifier", child.pid))
    del mine
    assert segment.writers() == []
    segment.close()
