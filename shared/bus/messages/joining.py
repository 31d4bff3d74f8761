"""How a service joins the bus, and how both sides know that the other is alive."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.bus.messages.fields import Count, Duration, Hash, Label, Message, Text

PROTOCOL_MAJOR = 3
PROTOCOL_MINOR = 0

Role = Literal["verifier", "draft", "gateway", "status"]


class Hello(Message):
    """First message of a service. A mismatch is answered with `Refused` and names the field."""

    protocol_major: Count = PROTOCOL_MAJOR
    protocol_minor: Count = PROTOCOL_MINOR
    role: Role
    incarnation: Annotated[int, Field(ge=0, lt=2**63)]  # monotonic ns at process start: newer fences older
    pid: Count
    config_hash: Hash = ""
    model_hash: Hash = ""  # of the model this role runs (its target or draft), "" when it runs none
    vocabulary_hash: Hash = ""
    plane: Label = ""  # KvGeometry.describe() of the plane this role writes, "" when it writes none


class Welcome(Message):
    context_incarnation: Count
    generation: Count  # of the shared-memory files; changes when they are created anew


class Refused(Message):
    field: Text
    expected: Text
    got: Text
    hint: Text


class Heartbeat(Message):
    """Sent every second in both directions. `busy_s`: how long the sender's loop has been in one step.

    `note`: what keeps the sender from its work, for `ringline status`; "" when nothing does.
    """

    busy_s: Duration = 0.0
    note: Text = ""


class Goodbye(Message):
    reason: Text
