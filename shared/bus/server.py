"""Context's end of the bus: who is there, what they say, and who has fallen silent.

Single-threaded: the caller polls. Poll at least every second, or the clients take context for dead.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq

from shared.bus.codec import ProtocolError, UnknownMajorError, decode, encode
from shared.bus.endpoints import Endpoints
from shared.bus.events import PeerJoined, PeerLost
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import PROTOCOL_MAJOR, Goodbye, Heartbeat, Hello, Refused, Role, Welcome
from shared.bus.sockets import (
    CONTROL_QUEUE,
    HEARTBEAT_S,
    LIVENESS_S,
    BoundFile,
    make_socket,
    readable,
    try_send,
)
from shared.config.sparse_log import SparseWarning

MAX_STATUS_PEERS = 32
_BATCH = 256  # messages handled in one poll
_GONE = "gone, or does not read"

Event = Message | PeerJoined | PeerLost


@dataclass(eq=False)
class Peer:
    """A client that was welcomed. `last_seen` is monotonic seconds; `busy_s` and `note` are from its last
    heartbeat."""

    hello: Hello
    identity: bytes
    last_seen: float = field(default_factory=time.monotonic)
    busy_s: float = 0.0
    note: str = ""

    @property
    def role(self) -> Role:
        return self.hello.role

    @property
    def pid(self) -> int:
        return self.hello.pid

    @property
    def incarnation(self) -> int:
        return self.hello.incarnation


class BusServer:
    """Binds the control socket. `check` may refuse a service (it is not asked about role "status").

    One peer per role: a Hello with a newer incarnation fences the older peer, an older one is refused. Beside
    them up to MAX_STATUS_PEERS of role "status".
    """

    def __init__(
        self,
        endpoints: Endpoints,
        incarnation: int,
        generation: int,
        check: Callable[[Hello], Refused | None],
    ) -> None:
        self._welcome = Welcome(context_incarnation=incarnation, generation=generation)
        self._check = check
        self._context = zmq.Context()
        self._socket = make_socket(self._context, zmq.ROUTER, CONTROL_QUEUE)
        self._file = BoundFile(self._socket, endpoints.control)
        self._peers: dict[bytes, Peer] = {}
        self._pending: deque[tuple[Peer, Event]] = deque()
        self._beat_at = time.monotonic() + HEARTBEAT_S
        self._warn = SparseWarning("message dropped")
        self.dropped = 0  # messages to peers that are no more, and bytes that were no message

    @property
    def peers(self) -> list[Peer]:
        return list(self._peers.values())

    def peer(self, role: Role) -> Peer | None:
        """The peer of that role; None when there is none."""
        return next((peer for peer in self._peers.values() if peer.role == role), None)

    def send(self, peer: Peer, message: Message) -> None:
        """Never blocks. A peer that is gone or does not read is lost; the next poll says so."""
        if self._peers.get(peer.identity) is not peer:
            self.dropped += 1
        elif not self._put(peer.identity, message):
            self._drop(peer, _GONE)

    def poll(self, timeout_s: float) -> list[tuple[Peer, Event]]:
        """Messages and arrivals in order; empty when there are none in `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            wait = 0.0 if self._pending else min(deadline, self._beat_at) - time.monotonic()
            if self._socket.poll(max(0, math.ceil(wait * 1000))):
                self._read()
            self._beat()
            if self._pending or time.monotonic() >= deadline:
                events = list(self._pending)
                self._pending.clear()
                return events

    def close(self, reason: str = "context stops") -> None:
        """Say goodbye to everybody and release the socket. Takes about 250 ms at most."""
        for identity in list(self._peers):
            self._put(identity, Goodbye(reason=reason))
        self._peers.clear()
        self._file.remove()
        self._socket.close()
        self._context.term()

    def _read(self) -> None:
        for _ in range(_BATCH):
            if not readable(self._socket):
                return
            identity, *parts = self._socket.recv_multipart(zmq.NOBLOCK)
            self._handle(identity, parts[-1] if parts else b"")

    def _handle(self, identity: bytes, frame: bytes) -> None:
        try:
            message = decode(frame)
        except UnknownMajorError as error:
            self._refuse(
                identity, "protocol_major", str(PROTOCOL_MAJOR), str(error.major), "install one release"
            )
            return
        except ProtocolError as error:
            self.dropped += 1
            self._warn(error=str(error), peer=repr(identity))
            return
        peer = self._peers.get(identity)
        if isinstance(message, Hello):
            self._greet(identity, message)
        elif peer is None:
            self._put(identity, Goodbye(reason="not joined"))
        else:
            self._deliver(peer, message)

    def _deliver(self, peer: Peer, message: Message) -> None:
        peer.last_seen = time.monotonic()
        if isinstance(message, Heartbeat):
            peer.busy_s, peer.note = message.busy_s, message.note
        elif isinstance(message, Goodbye):
            self._drop(peer, message.reason)
        else:
            self._pending.append((peer, message))

    def _greet(self, identity: bytes, hello: Hello) -> None:
        old = None if hello.role == "status" else self.peer(hello.role)
        if old is not None and hello.incarnation < old.incarnation:
            self._refuse_incarnation(identity, hello, old.incarnation)
            return
        refused = self._status_refusal() if hello.role == "status" else self._check(hello)
        if refused is not None:
            self._put(identity, refused)
            return
        if not self._put(identity, self._welcome):
            return
        if old is not None:
            self._fence(old, hello, identity)
        peer = Peer(hello, identity)
        self._peers[identity] = peer
        self._pending.append((peer, PeerJoined()))

    def _fence(self, old: Peer, hello: Hello, identity: bytes) -> None:
        """The newer incarnation has taken the role; the older one is told to end."""
        if hello.incarnation > old.incarnation and old.identity != identity:
            self._refuse_incarnation(old.identity, old.hello, hello.incarnation)
        self._drop(old, "replaced by a newer incarnation")

    def _status_refusal(self) -> Refused | None:
        count = sum(peer.role == "status" for peer in self._peers.values())
        if count < MAX_STATUS_PEERS:
            return None
        return Refused(
            field="role",
            expected=f"at most {MAX_STATUS_PEERS} status clients",
            got="one more",
            hint="try later",
        )

    def _refuse_incarnation(self, identity: bytes, hello: Hello, current: int) -> None:
        hint = f"a newer {hello.role} has taken its place; stop one of the two"
        self._refuse(identity, "incarnation", f"at least {current}", str(hello.incarnation), hint)

    def _refuse(self, identity: bytes, field_: str, expected: str, got: str, hint: str) -> None:
        self._put(identity, Refused(field=field_, expected=expected, got=got, hint=hint))

    def _put(self, identity: bytes, message: Message) -> bool:
        return try_send(self._socket, identity, encode(message))

    def _drop(self, peer: Peer, reason: str) -> None:
        if self._peers.get(peer.identity) is peer:
            del self._peers[peer.identity]
            self._pending.append((peer, PeerLost(reason)))

    def _beat(self) -> None:
        """Once a second: heartbeats out; peers that have been silent for too long are lost.

        Nobody is judged while messages wait to be read: a Goodbye may be among them, and after a pause of
        this process (a suspended machine, a debugger) the heartbeats of the living are.
        """
        now = time.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + HEARTBEAT_S
        reached = [peer for peer in self.peers if self._put(peer.identity, Heartbeat())]
        if readable(self._socket):
            return
        for peer in self.peers:
            if peer not in reached:
                self._drop(peer, _GONE)
            elif now - peer.last_seen > LIVENESS_S:
                self._drop(peer, f"silent for {LIVENESS_S:.0f} s")
