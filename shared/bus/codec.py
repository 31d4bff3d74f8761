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

from shared.bus import messages as m
from shared.config.errors import RinglineError
from shared.config.quote import one_line

MAX_FRAME: Final = 2 << 20
MAX_SMALL: Final = 64 << 10
_MAX_ITEMS: Final = 1 << 18

_TYPES: Final[dict[int, type[m.Message]]] = {
    1: m.Hello,
    2: m.Welcome,
    3: m.Refused,
    4: m.Heartbeat,
    5: m.Goodbye,
    16: m.RegisterProfile,
    17: m.Submit,
    18: m.Cancel,
    19: m.Accepted,
    20: m.Rejected,
    21: m.Tokens,
    22: m.Finished,
    23: m.StreamAppend,
    24: m.StreamClose,
    25: m.StreamAppended,
    26: m.StreamRefused,
    32: m.SeqOpen,
    33: m.SeqState,
    34: m.SeqClose,
    35: m.Commit,
    36: m.CommitFailed,
    37: m.PlaneFilled,
    38: m.Proposal,
    39: m.SeqReleased,
    40: m.SeqAppend,
    48: m.StatusRequest,
    49: m.StatusReply,
    50: m.PoolRequest,
    51: m.PoolReply,
}
_CODES: Final = {cls: code for code, cls in _TYPES.items()}
_LARGE: Final = (
    *(m.RegisterProfile, m.Submit, m.Tokens, m.StreamAppend),
    *(m.SeqOpen, m.SeqState, m.SeqAppend, m.Commit, m.StatusReply),
)


class ProtocolError(RinglineError):
    """Bytes that are no message of this protocol."""


class UnknownMajorError(ProtocolError):
    """A Hello of another major version."""

    def __init__(self, major: int) -> None:
        super().__init__(
            f"a service speaks protocol {major}, this one {m.PROTOCOL_MAJOR}: install the same release"
        )
        self.major = major


def encode(message: m.Message) -> bytes:
    """One frame. ProtocolError when it would be larger than its type allows."""
    body: bytes = msgpack.packb(message.model_dump(), use_bin_type=True)
    _check_size(type(message), 1 + len(body))
    return bytes((_CODES[type(message)],)) + body


def decode(frame: bytes) -> m.Message:
    """The message in `frame`. ProtocolError for anything else, whatever the bytes are."""
    if len(frame) < 2:
        raise ProtocolError(f"a frame of {len(frame)} bytes is too short")
    cls = _TYPES.get(frame[0])
    if cls is None:
        raise ProtocolError(f"unknown message type {frame[0]}")
    _check_size(cls, len(frame))
    fields = _unpack(memoryview(frame)[1:], cls)
    if cls is m.Hello:
        _check_major(fields.get("protocol_major"))
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = one_line(".".join(str(part) for part in first["loc"]), 64)
        raise ProtocolError(f"{cls.__name__}.{where}: {one_line(first['msg'], 200)}") from None


def _check_size(cls: type[m.Message], size: int) -> None:
    limit = MAX_FRAME if cls in _LARGE else MAX_SMALL
    if size > limit:
        raise ProtocolError(f"{cls.__name__} of {size} bytes is above the limit of {limit}")


def _check_major(major: object) -> None:
    """Before anything else in a Hello: the rest may have another meaning in another version."""
    if type(major) is not int or major < 0:
        raise ProtocolError("Hello.protocol_major: not a version number")
    if major != m.PROTOCOL_MAJOR:
        raise UnknownMajorError(major)


def _unpack(body: memoryview, cls: type[m.Message]) -> dict[Any, Any]:
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
