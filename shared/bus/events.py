"""What happens on the bus besides messages."""

from __future__ import annotations

from dataclasses import dataclass

from shared.bus.messages.joining import Refused, Welcome
from shared.config.errors import RinglineError


@dataclass(frozen=True)
class Joined:
    """A client is known to context; snapshots of the live sequences follow."""

    welcome: Welcome
    session: int = 0  # counts the Joineds of a client


@dataclass(frozen=True)
class Lost:
    """Context is gone or has forgotten this client. Joined comes when it is back."""

    reason: str


@dataclass(frozen=True)
class PeerJoined:
    """A client has been welcomed by this server."""


@dataclass(frozen=True)
class PeerLost:
    """A client said goodbye, fell silent or was fenced by a newer incarnation."""

    reason: str


class BusRefused(RinglineError):
    """Context does not take this service, which ends: a restart helps only if another one had its place."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(
            f"context refuses this service: {refused.field} is {refused.got or 'empty'}, "
            f"expected {refused.expected}: {refused.hint}"
        )
        self.refused = refused
        self.restart_mends = refused.field == "incarnation"  # the other one may be gone by then
