"""Session records are whole at every instant: as before a change, or as after it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.context.records import Record, RecordShape, RecordStore

SHAPE = RecordShape(slots=2, blocks=8, tokens=64)


def record(n_tokens: int, epoch: int, **fields: object) -> Record:
    values: dict[str, object] = {
        "kind": "sequence",
        "seq": 1,
        "request_id": "警报-1",
        "profile": "p",
        "severity": 1,
        "sink": 4,
        "window": 16,
        "ring": 32,
        "n_tokens": n_tokens,
        "prompt_len": 2,
        "max_tokens": 60,
        "stop_tokens": [0],
        "stop": ["###"],
        "sampling": {"temperature": 0.8, "seed": 7, "acceptance": "match"},
        "kv_len": n_tokens - 1,
        "draft_kv_len": 0,
        "epoch": epoch,
        "blocks": [1, 2, 3],
        "first": 0,
        "stream": "",
        "serial": 0,
        "forked": False,
        "cached_tokens": 0,
        "passes": epoch,
        "drafted": 0,
        "accepted": 0,
        "finish": "",
    }
    return Record.model_validate({**values, **fields})


def written(before: bytes, after: bytes) -> Iterator[bytes]:
    """The buffer after every single byte of the change. Which bytes go first is the processor's choice."""
    changed = [i for i in range(len(before)) if before[i] != after[i]]
    for order in (changed, changed[::-1], random.Random(1).sample(changed, len(changed))):
        buffer = bytearray(before)
        for index in order:
            yield bytes(buffer)
            buffer[index] = after[index]
        yield bytes(buffer)


def load(buffer: bytes) -> dict[int, tuple[int, list[int]]]:
    """Epoch and tokens by slot."""
    found = RecordStore(memoryview(bytearray(buffer)), SHAPE).load()
    return {slot: (record.epoch, tokens) for slot, (record, tokens) in found.items()}


def test_a_commit_cut_at_any_byte_leaves_the_record_before_or_after() -> None:
    buffer = bytearray(SHAPE.total_bytes)
    store = RecordStore(memoryview(buffer), SHAPE)
    tokens = [5, 6, 7]
    store.put(0, record(3, 0), tokens)
    for epoch in range(1, 4):
        before = bytes(buffer)
        old, tokens = tokens, [*tokens, 40 + epoch, 50 + epoch]
        store.put(0, record(len(tokens), epoch), tokens)
        for image in written(before, bytes(buffer)):
            assert load(image) in ({0: (epoch - 1, old)}, {0: (epoch, tokens)})


def test_reusing_a_slot_cut_at_any_byte_shows_the_old_nothing_or_the_new() -> None:
    buffer = bytearray(SHAPE.total_bytes)
    store = RecordStore(memoryview(buffer), SHAPE)
    store.put(1, record(3, 9), [1, 2, 3])
    full = bytes(buffer)
    store.clear(1)
    empty = bytes(buffer)
    store.put(1, record(2, 0), [7, 8])
    for image in written(full, empty):
        assert load(image) in ({1: (9, [1, 2, 3])}, {})
    for image in written(empty, bytes(buffer)):
        assert load(image) in ({}, {1: (0, [7, 8])})


def test_a_recovered_store_goes_on_writing() -> None:
    buffer = bytearray(SHAPE.total_bytes)
    RecordStore(memoryview(buffer), SHAPE).put(0, record(3, 0), [1, 2, 3])
    again = RecordStore(memoryview(buffer), SHAPE)
    again.load()
    again.put(0, record(4, 1), [1, 2, 3, 4])
    assert load(bytes(buffer)) == {0: (1, [1, 2, 3, 4])}


@given(
    st.lists(st.tuples(st.integers(0, SHAPE.total_bytes - 1), st.integers(0, 255)), min_size=1, max_size=40)
)
@settings(max_examples=200)
def test_flipped_bytes_never_show_a_record_that_was_not_written(flips: list[tuple[int, int]]) -> None:
    buffer = bytearray(SHAPE.total_bytes)
    store = RecordStore(memoryview(buffer), SHAPE)
    store.put(0, record(3, 0), [1, 2, 3])
    store.put(0, record(4, 1), [1, 2, 3, 4])
    for index, value in flips:
        buffer[index] = value
    assert load(bytes(buffer)) in ({0: (1, [1, 2, 3, 4])}, {0: (0, [1, 2, 3])}, {})


@given(st.integers(0, 2**64))
@settings(max_examples=50)
def test_random_bytes_are_no_records(seed: int) -> None:
    assert load(random.Random(seed).randbytes(SHAPE.total_bytes)) == {}


def test_what_does_not_fit_is_refused_before_anything_is_written() -> None:
    buffer = bytearray(SHAPE.total_bytes)
    store = RecordStore(memoryview(buffer), SHAPE)
    with pytest.raises(ValueError, match="do not fit"):
        store.put(0, record(65, 0), list(range(65)))
    assert not any(buffer)


def test_the_longest_fields_fit() -> None:
    buffer = bytearray(SHAPE.total_bytes)
    store = RecordStore(memoryview(buffer), SHAPE)
    big = 2**53 - 1
    full = record(
        64,
        big,
        request_id="警" * 128,
        profile="报" * 64,
        stream="流" * 128,
        finish="f" * 16,
        stop_tokens=[2**31 - 1] * 16,
        stop=["止" * 64] * 8,
        sampling={
            "temperature": 0.8,
            "top_k": 1 << 20,
            "top_p": 0.1,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "seed": big,
            "acceptance": "match",
        },
        blocks=[2**26] * 8,
        kv_len=big,
        seq=big,
    )
    store.put(1, full, [2**31 - 1] * 64)
    assert load(bytes(buffer)) == {1: (big, [2**31 - 1] * 64)}
