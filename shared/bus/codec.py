"""Messages as bytes.

    ┌──────┬──────────────────────────────────────────┐
    │ type │ msgpack map: field name -> value         │   at most MAX_FRAME bytes in all, MAX_SMALL for
    └──────┴──────────────────────────────────────────┘   types that carry neither prompts nor tables
     1 byte

The type bytes of Hello and Refused keep their meaning in every version of the protocol, so that services of
different versions can still tell each other why they do not talk.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack
from pydantic import ValidationError

from shared.bus.messages import joining, requests, sequences, status
from shared.bus.messages.fields import Message
from shared.config.errors import RinglineError
from shared.config.quote import one_line

MAX_FRAME: Final = 2 << 20
MAX_SMALL: Final = 64 << 10
_MAX_ITEMS: Final = 1 << 18

_TYPES: Final[dict[int, type[Message]]] = {
    1: joining.Hello,
    2: joining.Welcome,
    3: joining.Refused,
    4: joining.Heartbeat,
    5: joining.Goodbye,
    16: requests.RegisterProfile,
    17: requests.Submit,
    18: requests.Cancel,
    19: requests.Accepted,
    20: requests.Rejected,
    21: requests.Tokens,
    22: requests.Finished,
    23: requests.StreamAppend,
    24: requests.StreamClose,
    25: requests.StreamAppended,
    26: requests.StreamRefused,
    32: sequences.SeqOpen,
    33: sequences.SeqState,
    34: sequences.SeqClose,
    35: sequences.Commit,
    36: sequences.CommitFailed,
    37: sequences.PlaneFilled,
    38: sequences.Proposal,
    39: sequences.SeqReleased,
    40: sequences.SeqAppend,
    48: status.StatusRequest,
    49: status.StatusReply,
    50: status.PoolRequest,
    51: status.PoolReply,
}
_CODES: Final = {cls: code for code, cls in _TYPES.items()}
_LARGE: Final = (
    *(requests.RegisterProfile, requests.Submit, requests.Tokens, requests.StreamAppend),
    *(sequences.SeqOpen, sequences.SeqState, sequences.SeqAppend, sequences.Commit, status.StatusReply),
)


class ProtocolError(RinglineError):
    """Bytes that are no message of this protocol."""


class UnknownMajorError(ProtocolError):
    """A Hello of another major version."""

    def __init__(self, major: int) -> None:
        super().__init__(
            f"a service speaks protocol {major}, this one {joining.PROTOCOL_MAJOR}: install the same release"
        )
        self.major = major


def encode(message: Message) -> bytes:
    """One frame. ProtocolError when it would be larger than its type allows."""
    body: bytes = msgpack.packb(message.model_dump(), use_bin_type=True)
    _check_size(type(message), 1 + len(body))
    return bytes((_CODES[type(message)],)) + body


def decode(frame: bytes) -> Message:
    """The message in `frame`. ProtocolError for anything else, whatever the bytes are."""
    if len(frame) < 2:
        raise ProtocolError(f"a frame of {len(frame)} bytes is too short")
    cls = _TYPES.get(frame[0])
    if cls is None:
        raise ProtocolError(f"unknown message type {frame[0]}")
    _check_size(cls, len(frame))
    fields = _unpack(memoryview(frame)[1:], cls)
    if cls is joining.Hello:
        _check_major(fields.get("protocol_major"))
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = one_line(".".join(str(part) for part in first["loc"]), 64)
        raise ProtocolError(f"{cls.__name__}.{where}: {one_line(first['msg'], 200)}") from None


def _check_size(cls: type[Message], size: int) -> None:
    limit = MAX_FRAME if cls in _LARGE else MAX_SMALL
    if size > limit:
        raise ProtocolError(f"{cls.__name__} of {size} bytes is above the limit of {limit}")


def _check_major(major: object) -> None:
    """Before anything else in a Hello: the rest may have another meaning in another version."""
    if type(major) is not int or major < 0:
        raise ProtocolError("Hello.protocol_major: not a version number")
    if major != joining.PROTOCOL_MAJOR:
        raise UnknownMajorError(major)


def _unpack(body: memoryview, cls: type[Message]) -> dict[Any, Any]:
    try:
        fields = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=False,
            max_array_len=_MAX_ITEMS,
            max_map_len=256,
            max_bin_len=0,
            max_ext_len=0,
        )
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{cls.__name__}: not msgpack ({type(error).__name__})") from None
    if not isinstance(fields, dict):
        raise ProtocolError(f"{cls.__name__}: not a map")
    return fields
