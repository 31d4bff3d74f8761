"""Whom the sessions talk to. A role that is not there misses what is sent: it asks, or gets a snapshot."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Role
from shared.bus.messages.requests import Rejected
from shared.bus.messages.sequences import SeqClose

_WRITERS: tuple[Role, ...] = ("verifier", "draft")

_log = structlog.get_logger()
Send = Callable[[Role, Message], None]


class Post:
    """`send` delivers to a role if it is there."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def gateway(self, message: Message) -> None:
        self._send("gateway", message)

    def verifier(self, message: Message) -> None:
        self._send("verifier", message)

    def writers(self, message: Message) -> None:
        """Verifier and draft."""
        for role in _WRITERS:
            self._send(role, message)

    def close(self, seq: int, reason: str, last: list[int] | None = None) -> None:
        """`last`: tokens of the commit that ended it."""
        self.writers(SeqClose(seq=seq, reason=reason, tokens=last or []))

    def reject(self, request_id: str, reason: str, retry_after_s: float | None) -> None:
        _log.warning("request refused", request=request_id, reason=reason, retry_after_s=retry_after_s)
        self.gateway(Rejected(request_id=request_id, reason=reason, retry_after_s=retry_after_s))
