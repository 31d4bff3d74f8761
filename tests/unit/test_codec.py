"""Bytes that are no message give ProtocolError, whatever they are; what is a message survives the way."""

from __future__ import annotations

import contextlib
import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.codec import MAX_FRAME, MAX_SMALL, ProtocolError, UnknownMajorError, decode, encode
from shared.bus.messages import joining, requests, sequences, status
from shared.bus.messages.fields import Message

MESSAGES = [
    joining.Hello(
        role="draft", incarnation=7, pid=1, config_hash="c", model_hash="m", vocabulary_hash="v", plane="p"
    ),
    joining.Welcome(context_incarnation=1, generation=2),
    joining.Refused(field="plane", expected="a", got="b", hint="c"),
    joining.Heartbeat(busy_s=0.5),
    joining.Goodbye(reason="报警"),
    requests.RegisterProfile(profile="zh", tokens=[1, 2], window=64),
    requests.Submit(
        request_id="r",
        profile="zh",
        tokens=[1],
        max_tokens=5,
        stop_tokens=[2],
        stop=["###", "。\n"],
        sampling=requests.Sampling(
            temperature=0.8, top_k=40, top_p=0.9, min_p=0.02, seed=2**53 - 1, acceptance="ratio"
        ),
        severity=3,
    ),
    requests.Cancel(request_id="r"),
    requests.Accepted(request_id="r", cached_tokens=16),
    requests.Rejected(request_id="r", reason="full", retry_after_s=None),
    requests.Tokens(request_id="r", index=2**40, tokens=[2**31 - 1]),
    requests.Finished(
        request_id="r",
        reason="stop",
        prompt_tokens=1,
        answer_tokens=2,
        cached_tokens=0,
        passes=1,
        drafted=3,
        accepted=2,
    ),
    requests.StreamAppend(stream="line/3", profile="zh", serial=2**40, tokens=[1, 2]),
    requests.StreamClose(stream="line/3"),
    requests.StreamAppended(stream="line/3", serial=2**40),
    requests.StreamRefused(stream="line/3", serial=7, reason="满", retry_after_s=0.5),
    sequences.SeqOpen(
        seq=1,
        epoch=0,
        tokens=[1],
        prompt_len=1,
        kv_len=0,
        draft_kv_len=0,
        blocks=[5],
        sink=0,
        ring=64,
        window=32,
        max_tokens=4,
        stop_tokens=[],
        severity=0,
    ),
    sequences.SeqState(seq=1, epoch=1, kv_len=1, tokens=[9], first_block=0, blocks=[5, 6]),
    sequences.SeqAppend(seq=1, known=2**40, tokens=[9], first_block=2, blocks=[5, 6]),
    sequences.SeqClose(seq=1, reason="done"),
    sequences.SeqReleased(seq=1),
    sequences.Commit(
        seq=1, epoch=0, kv_len=0, written=1, tokens=[9], finish="stop", accepted_by_source={0: 3, 1: 1}
    ),
    sequences.CommitFailed(seq=1, epoch=0, reason="broken table"),
    sequences.PlaneFilled(seq=1, kv_len=4),
    sequences.Proposal(
        seq=1,
        base=1,
        tokens=[3, 4],
        parents=[-1, 0],
        sources=[0, 1],
        logq=[-0.5, -1.0],
        draws=[sequences.Draw(parent=0, children=[1], ids=[4, 9], probs=[0.75, 0.25])],
    ),
    status.StatusRequest(),
    status.StatusReply(
        generation=1,
        pool_bytes=1,
        blocks_total=1,
        blocks_free=1,
        blocks_pinned=0,
        blocks_peak=1,
        waiting=0,
        services=[status.ServiceStatus(role="draft", pid=1, alive=True, age_s=0.1, busy_s=0.0)],
        sequences=[],
    ),
    status.PoolRequest(),
    status.PoolReply(
        generation=1,
        planes=["1 layers"],
        block_bytes=1,
        blocks_total=1,
        blocks_free=1,
        blocks_cached=0,
        blocks_pinned=0,
        blocks_private=0,
        blocks_shared=0,
        blocks_promised=0,
        cache=status.CacheStatus(hit_tokens=1),
        sequences=[],
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_survives_the_way(message: Message) -> None:
    assert decode(encode(message)) == message


def test_every_message_type_of_the_bus_is_covered() -> None:
    """A message without a type byte would be found in production otherwise."""
    parts = {
        status.ServiceStatus,
        status.SequenceStatus,
        status.CacheStatus,
        status.PoolSequence,
        requests.Sampling,
        sequences.Draw,
    }
    assert {type(message) for message in MESSAGES} == set(Message.__subclasses__()) - parts


@given(st.binary(max_size=300))
def test_random_bytes_are_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(b"\x00" + frame)
    with contextlib.suppress(ProtocolError):
        decode(frame)


@given(st.sampled_from(MESSAGES), st.data())
def test_a_damaged_message_is_a_message_or_a_protocol_error(message: Message, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    position = data.draw(st.integers(0, len(frame) - 1))
    frame[position] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(frame)))
    for damaged in (bytes(frame), bytes(frame[:end])):
        with contextlib.suppress(ProtocolError):
            assert isinstance(decode(damaged), Message)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(st.integers(0, 60), _values)
def test_well_formed_msgpack_of_the_wrong_shape_is_a_protocol_error(code: int, value: object) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode(bytes((code,)) + msgpack.packb(value)), Message)


@pytest.mark.parametrize(
    "body",
    [
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc7\xff\x01",
        b"\x81\xc0\xc0",
        b"\x81\x90\xc0",
    ],
    ids=["deep", "huge array", "huge map", "extension", "null key", "array key"],
)
def test_hostile_msgpack_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(b"\x04" + body)


def test_the_size_cap_holds_before_anything_is_decoded() -> None:
    with pytest.raises(ProtocolError, match="above the limit"):
        decode(b"\x23" * (MAX_FRAME + 1))


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 18, 24, 25, 26, 34, 38])
def test_types_without_prompts_and_tables_have_a_small_cap(code: int) -> None:
    with pytest.raises(ProtocolError, match=f"above the limit of {MAX_SMALL}"):
        decode(bytes((code,)) * (MAX_SMALL + 1))


def test_a_message_above_the_cap_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="above the limit"):
        encode(joining.Goodbye.model_construct(reason="x" * MAX_FRAME))


WIDE = "\U00020000"  # a character of four bytes
TOKENS, BLOCKS, COUNT = [2**31 - 1] * (1 << 18), [2**53 - 1] * (1 << 16), 2**53 - 1
LARGEST = [
    joining.Refused(field=WIDE * 9999, expected=WIDE * 9999, got=WIDE * 9999, hint=WIDE * 9999),
    requests.Submit(
        request_id=WIDE * 128,
        profile=WIDE * 64,
        tokens=TOKENS,
        max_tokens=65536,
        stop_tokens=TOKENS[:16],
        stop=[WIDE * 64] * 8,
        label=WIDE * 128,
        stream=WIDE * 128,
    ),
    requests.StreamAppend(stream=WIDE * 128, profile=WIDE * 64, serial=COUNT, tokens=TOKENS),
    requests.StreamRefused(stream=WIDE * 128, serial=COUNT, reason=WIDE * 9999, retry_after_s=0.1),
    sequences.SeqAppend(seq=COUNT, known=COUNT, tokens=TOKENS, first_block=COUNT, blocks=BLOCKS),
    sequences.SeqOpen(
        seq=COUNT,
        epoch=COUNT,
        first=COUNT,
        tokens=TOKENS,
        prompt_len=COUNT,
        kv_len=COUNT,
        draft_kv_len=COUNT,
        blocks=BLOCKS,
        sink=COUNT,
        ring=COUNT,
        window=COUNT,
        max_tokens=COUNT,
        stop_tokens=TOKENS[:16],
        stop=[WIDE * 64] * 8,
        severity=COUNT,
    ),
    sequences.Proposal(
        seq=COUNT,
        base=COUNT,
        tokens=TOKENS[:256],
        parents=[255] * 256,
        sources=[2] * 256,
        logq=[-0.1] * 256,
        draws=[sequences.Draw(parent=255, children=[255] * 16, ids=TOKENS[:64], probs=[0.1] * 64)] * 48,
    ),
    status.StatusReply(
        generation=COUNT,
        pool_bytes=COUNT,
        blocks_total=COUNT,
        blocks_free=COUNT,
        blocks_pinned=COUNT,
        blocks_peak=COUNT,
        waiting=COUNT,
        services=[
            status.ServiceStatus(
                role=WIDE * 64, pid=COUNT, alive=True, age_s=0.1, busy_s=0.1, note=WIDE * 500
            )
        ]
        * 64,
        sequences=[
            status.SequenceStatus(
                seq=COUNT,
                request_id=WIDE * 128,
                profile=WIDE * 128,
                tokens=COUNT,
                kv_len=COUNT,
                blocks=COUNT,
                shared_blocks=COUNT,
                label=WIDE * 128,
            )
        ]
        * 1024,
    ),
]


@pytest.mark.parametrize("message", LARGEST, ids=lambda message: type(message).__name__)
def test_what_can_be_made_can_be_sent(message: Message) -> None:
    """Sending never fails: the largest message of each kind fits."""
    assert decode(encode(message)) == message


def test_text_for_people_is_cut_where_it_is_made_and_where_it_is_read() -> None:
    reason = "a\nringline: all is well" + "x" * 10_000
    assert len(joining.Goodbye(reason=reason).reason) == 500
    read = decode(b"\x05" + msgpack.packb({"reason": reason}))
    assert isinstance(read, joining.Goodbye)
    assert read.reason.startswith("a\\nringline")
    assert len(read.reason) == 500


@pytest.mark.parametrize(
    "message",
    [message for message in MESSAGES if type(message).model_fields],
    ids=lambda message: type(message).__name__,
)
def test_no_field_takes_a_text_without_a_limit(message: Message) -> None:
    """Refused, or cut."""
    for name in type(message).model_fields:
        fields = message.model_dump() | {name: "x" * 5000}
        frame = encode(message)[:1] + msgpack.packb(fields)
        with contextlib.suppress(ProtocolError):
            assert len(str(decode(frame))) < 5000


def test_a_list_of_wrong_items_is_one_error_and_not_one_for_each() -> None:
    """A quarter of a million of them took seconds and a gigabyte."""
    fields = {"seq": 1, "epoch": 0, "kv_len": 0, "written": 1, "tokens": [-1] * (1 << 18)}
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="Commit"):
        decode(b"\x23" + msgpack.packb(fields))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize(
    "major",
    ["x" * 60_000, [[[]]], {"a": 1}, None, 1.0, True, -1],
    ids=["text", "list", "map", "nil", "float", "bool", "negative"],
)
def test_a_version_that_is_no_number_is_no_hello(major: object) -> None:
    with pytest.raises(ProtocolError, match="not a version number") as caught:
        decode(b"\x01" + msgpack.packb({"protocol_major": major, "role": "draft"}))
    assert not isinstance(caught.value, UnknownMajorError)


def test_a_version_nested_beyond_what_can_be_shown_is_no_hello() -> None:
    body = b"\x81" + msgpack.packb("protocol_major") + b"\x91" * 1000 + b"\x90"
    with pytest.raises(ProtocolError):
        decode(b"\x01" + body)


@given(st.integers(0, 2**64 - 1).filter(lambda major: major != joining.PROTOCOL_MAJOR))
def test_any_other_major_is_told_apart(major: int) -> None:
    with pytest.raises(UnknownMajorError) as caught:
        decode(b"\x01" + msgpack.packb({"protocol_major": major}))
    assert caught.value.major == major


@pytest.mark.parametrize("key", ["k" * 60_000, "a\n\x1b[2J" * 1000], ids=["long", "controls"])
def test_an_unknown_field_is_named_on_one_short_line(key: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(b"\x04" + msgpack.packb({key: 1}))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_an_unknown_major_is_told_apart_whatever_else_the_hello_holds() -> None:
    frame = b"\x01" + msgpack.packb({"protocol_major": 9, "colour": "blue"})
    with pytest.raises(UnknownMajorError, match="protocol 9"):
        decode(frame)
