"""Weight caches are packed once and rebuilt with one line; a broken GGUF is one clear line."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.config.errors import RinglineError
from shared.config.settings import Paths
from shared.model.cache_file import damaged_part
from shared.model.open import open_model
from shared.native import digest
from tests.unit.said import Said
from tests.unit.tiny_gguf import write_tiny


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf")


def opened(source: Path) -> tuple[Path, int, list[str]]:
    """The cache, its inode (another one after each packing), and what was said."""
    said = Said()
    path = open_model(str(source), Paths(data=source.parent), said).path
    return path, path.stat().st_ino, said.lines


def test_a_warm_cache_is_used_again_and_is_private(tiny: Path) -> None:
    first, again = opened(tiny), opened(tiny)
    assert first == again
    assert first[2] == []
    assert first[0].stat().st_mode & 0o777 == 0o600
    file = open_model(str(tiny), Paths(data=tiny.parent))
    assert damaged_part(file.path, file.directory) is None
    assert file.tokenizer().encode("abc<|im_end|>")[0] == 14


@pytest.mark.parametrize("damage", ["truncated", "header", "directory", "stale", "empty"])
def test_an_unusable_cache_is_packed_again_with_one_line(tiny: Path, damage: str) -> None:
    cache, _, _ = opened(tiny)
    good = raw = cache.read_bytes()
    if damage == "stale":
        os.utime(tiny, ns=(1, 1))
    else:
        at = {"header": 9, "directory": len(raw) - 9}.get(damage, 0)
        flipped = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        cache.write_bytes({"truncated": raw[:-1], "empty": b""}.get(damage, flipped))
    _, _, lines = opened(tiny)
    assert len(lines) == 1
    assert "packed again" in lines[0]
    assert damage == "stale" or cache.read_bytes() == good
    assert opened(tiny)[2] == []


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_flipped_bit_in_the_weights_is_found_and_packed_again(tiny: Path, data: st.DataObject) -> None:
    said = Said()
    opened(tiny)[0].unlink()  # whatever the example before has left
    file = open_model(str(tiny), Paths(data=tiny.parent), said)
    good = file.path.read_bytes()
    (name, *_, offset, nbytes), _ = data.draw(st.sampled_from(file.directory.tensors))
    bit = data.draw(st.integers(0, 8 * nbytes - 1))
    raw = bytearray(good)
    raw[offset + bit // 8] ^= 1 << bit % 8
    file.path.write_bytes(raw)
    assert damaged_part(file.path, file.directory) == name
    file.load(2)
    assert [line for line in said.lines if name in line and "packed again" in line] == said.lines[-1:]
    assert file.path.read_bytes() == good


@given(st.binary(max_size=300), st.data())
def test_a_digest_depends_on_every_bit_and_on_the_length(raw: bytes, data: st.DataObject) -> None:
    assert digest(raw) == digest(bytearray(raw))
    assert digest(raw) != digest(raw + b"\0")
    if raw:
        bit = data.draw(st.integers(0, 8 * len(raw) - 1))
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        assert digest(raw) != digest(flipped)


def test_a_damaged_gguf_is_an_error_of_ours_or_opens(tiny: Path) -> None:
    rng, good, fine, errors = random.Random(1), tiny.read_bytes(), 0, list[str]()
    header = good.index(b"blk.0.ffn_down") + 64
    for _ in range(300):
        raw = bytearray(good)
        if rng.random() < 0.3:
            del raw[rng.randrange(len(raw)) :]
        for _ in range(rng.randrange(4)):
            if raw:
                raw[rng.randrange(min(header, len(raw)))] ^= 1 << rng.randrange(8)
        tiny.write_bytes(raw)
        try:
            opened(tiny)
            fine += 1
        except RinglineError as error:
            errors.append(str(error))
    assert fine
    assert errors
    assert all("tiny.gguf" in line and "\n" not in line for line in errors)


def test_missing_file_tensor_and_unknown_architecture_are_named(tmp_path: Path) -> None:
    for file, message in (
        (tmp_path / "none.gguf", "no such model file"),
        (write_tiny(tmp_path / "a.gguf", architecture="mamba"), "mamba"),
        (write_tiny(tmp_path / "b.gguf", skip="blk.0.ffn_up"), r"blk\.0\.ffn_up\.weight"),
    ):
        with pytest.raises(RinglineError, match=message):
            opened(file)
