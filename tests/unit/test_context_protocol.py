"""Who may say what to context."""

from __future__ import annotations

from typing import cast

import pytest
from structlog.testing import capture_logs

from services.context.protocol import Protocol
from services.context.sessions import Sessions
from services.context.writers import Writers
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Hello, Role
from shared.bus.messages.requests import Cancel
from shared.bus.messages.sequences import Commit
from shared.bus.messages.status import StatusReply, StatusRequest
from shared.bus.server import Peer
from shared.kv import Segment

COMMIT = Commit(seq=1, epoch=0, kv_len=0, written=1, tokens=[1])


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ("status", COMMIT),
        ("status", Cancel(request_id="r")),
        ("gateway", COMMIT),
        ("draft", COMMIT),
        ("verifier", Cancel(request_id="r")),
        ("verifier", StatusRequest()),
        ("gateway", StatusReply.model_construct()),
    ],
)
def test_what_a_role_may_not_say_is_ignored_with_one_line_however_often(role: Role, message: Message) -> None:
    """None of context's state is touched: there is none here."""
    peer = Peer(Hello(role=role, incarnation=1, pid=1), b"peer")
    nothing = cast(Sessions, None), cast(Writers, None), cast(Segment, None)
    protocol = Protocol(*nothing, lambda _peer, _message: None, list)
    with capture_logs() as lines:
        for _ in range(200):
            protocol.handle(peer, message)
    assert lines == [
        {"event": "message ignored", "role": role, "message": type(message).__name__, "log_level": "warning"}
    ]
