"""Whatever is in a GGUF, reading it gives a header or one short line that names the file and the place."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.config.errors import RinglineError
from shared.config.quote import MAX_SHOWN, one_line, quoted
from shared.model.architecture import chat_template, check_tensors, context_length, model_spec
from shared.model.gguf_read import MAX_ELEMENTS, MAX_HEADER, read_gguf
from shared.model.vocabulary import read_vocabulary
from tests.unit.tiny_gguf import write_tiny

U8, U32, BOOL, STRING, ARRAY = 0, 4, 7, 8, 9
EVIL = "a\nringline: all is well\x1b[2J\u202e" + "x" * 300
many = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def array(kind: int, elements: bytes, count: int) -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, count) + elements


def text(value: str) -> bytes:
    return struct.pack("<I", STRING) + string(value)


def gguf(*pairs: tuple[str, bytes], tensors: tuple[bytes, ...] = ()) -> bytes:
    """A file of these keys (type and value already bytes) and tensor directory entries."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    return head + b"".join(string(key) + value for key, value in pairs) + b"".join(tensors) + bytes(64)


def tensor(name: str, kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack("<IQIQ", 1, 8, kind, offset)


def use(raw: bytes, path: Path) -> None:
    """Everything that is read of a header before a model is packed."""
    path.write_bytes(raw)
    header = read_gguf(path)
    check_tensors(header, model_spec(header))
    read_vocabulary(header)
    context_length(header)
    chat_template(header)


def refusal(raw: bytes, path: Path) -> str:
    with pytest.raises(RinglineError) as caught:
        use(raw, path)
    return str(caught.value)


def assert_used_or_refused(raw: bytes, path: Path) -> None:
    said = ""
    try:
        use(raw, path)
    except RinglineError as error:
        said = str(error)
    assert not said or said.isprintable()
    assert len(said.removeprefix(str(path))) < 400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.gguf"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


@pytest.fixture(scope="module")
def header(good: bytes) -> int:
    """About how many bytes come before the tensors' data."""
    return good.index(b"blk.0.ffn_down") + 64


@many
@given(raw=st.binary(max_size=400), counts=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_random_bytes(raw: bytes, counts: tuple[int, int], path: Path) -> None:
    assert_used_or_refused(raw, path)
    assert_used_or_refused(b"GGUF" + struct.pack("<IQQ", 3, *counts) + raw, path)


@many
@given(data=st.data())
def test_truncations(data: st.DataObject, good: bytes, header: int, path: Path) -> None:
    end = data.draw(st.integers(0, header) | st.integers(0, len(good)))
    assert_used_or_refused(good[:end], path)


@many
@given(data=st.data())
def test_mutations(data: st.DataObject, good: bytes, header: int, path: Path) -> None:
    """Bytes and whole numbers anywhere in the header are replaced."""
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, header - 8))
        new = data.draw(
            st.binary(min_size=1, max_size=8) | st.integers(0, 2**64 - 1).map(struct.Struct("<Q").pack)
        )
        raw[at : at + len(new)] = new
    assert_used_or_refused(bytes(raw), path)


@given(written=st.text(max_size=200))
def test_foreign_text_in_a_message_is_one_short_line(written: str) -> None:
    assert quoted(written).isprintable()
    assert len(quoted(written)) <= MAX_SHOWN + 2
    assert one_line(written, 10).isprintable()
    assert not (len(written) < 10 and written.isprintable()) or quoted(written) == f'"{written.strip()}"'


@pytest.mark.parametrize(
    "make",
    [
        lambda: gguf(("general.architecture", text(EVIL))),
        lambda: gguf((EVIL[:200], struct.pack("<I", 99))),
        lambda: gguf(tensors=(tensor(EVIL[:200], kind=99),)),
        lambda: gguf(tensors=(tensor(EVIL[:200], offset=7),)),
        lambda: gguf(("general.alignment", text(EVIL))),
        lambda: gguf(("general.architecture", text("llama")), ("llama.block_count", text(EVIL))),
        lambda: gguf(("general.architecture", text("llama")), ("llama.rope.scaling.type", text(EVIL))),
        lambda: gguf(("general.architecture", array(BOOL, bytes(100_000), 100_000))),
    ],
)
def test_what_the_file_says_is_quoted_and_cut(make: Callable[[], bytes], path: Path) -> None:
    message = refusal(make(), path)
    assert message.isprintable()
    assert len(message.removeprefix(str(path))) < 300


def test_texts_of_the_tokenizer_are_quoted_and_cut(path: Path) -> None:
    keys = [("tokenizer.ggml.model", text("gpt2")), ("tokenizer.ggml.pre", text("smollm"))]
    lists = [
        ("tokenizer.ggml.tokens", array(STRING, string("a"), 1)),
        ("tokenizer.ggml.token_type", array(U32, struct.pack("<I", 1), 1)),
        ("tokenizer.ggml.merges", array(STRING, string(EVIL), 1)),
    ]
    for pairs in (
        [("tokenizer.ggml.model", text(EVIL))],
        [keys[0], ("tokenizer.ggml.pre", text(EVIL))],
        [*keys, *lists],
    ):
        path.write_bytes(gguf(*pairs))
        with pytest.raises(RinglineError, match="ringline: all is well") as caught:
            read_vocabulary(read_gguf(path))
        assert str(caught.value).isprintable()


def test_lists_are_limited_in_all_not_each(path: Path) -> None:
    half = array(U8, bytes(MAX_ELEMENTS // 2 + 1), MAX_ELEMENTS // 2 + 1)
    message = refusal(gguf(("one", half), ("two", half)), path)
    assert 'key "two"' in message
    assert str(MAX_ELEMENTS) in message


def test_the_header_is_limited_in_all(path: Path) -> None:
    """Thousands of strings of the greatest length are refused without being kept."""
    long = text("x" * (1 << 20))
    message = refusal(gguf(*((f"key{i}", long) for i in range(MAX_HEADER >> 20))), path)
    assert f"at most {MAX_HEADER}" in message


def test_a_key_that_is_there_twice_is_named(path: Path) -> None:
    one = struct.pack("<IB", U8, 1)
    assert 'key "first": it is there twice' in refusal(
        gguf(("first", one), ("first", one), ("last", one)), path
    )


def test_a_wrong_alignment_is_named_not_the_last_tensor(path: Path) -> None:
    pairs = ("general.alignment", struct.pack("<II", U32, 3)), ("last", struct.pack("<IB", U8, 1))
    message = refusal(gguf(*pairs, tensors=(tensor("weight"),)), path)
    assert 'key "general.alignment": it is 3' in message
    assert "weight" not in message
    assert "last" not in message


def test_booleans_are_no_whole_numbers(path: Path) -> None:
    path.write_bytes(gguf(("list", array(BOOL, b"\1\0", 2)), ("numbers", array(U8, b"\1\0", 2))))
    header = read_gguf(path)
    assert header.integers("numbers") == [1, 0]
    with pytest.raises(RinglineError, match='key "list" is a list of 2, not a list of whole numbers'):
        header.integers("list")
