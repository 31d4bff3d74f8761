"""A service's end of the bus.

    service thread                     bus thread (owns every socket)
    ──────────────                     ──────────────────────────────
    send, propose ──outbox, eventfd──▶ DEALER ⇄ context's ROUTER      PUSH ──▶ verifier's PULL
    receive       ◀─────inbox───────── heartbeats every second

    connecting ──connected: Hello──▶ greeting ──Welcome──▶ joined
         ▲                              │ 3 s                │ Goodbye, 3 s of silence, a queue is full
         └──────────────────────────────┴────────────────────┘   (a new socket with a new identity)

A long step of the service (a forward pass) therefore never looks like a dead process, and a service that
hangs is still seen: heartbeats say how long its current step has been running.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from typing import Literal

import zmq

from shared.bus.codec import ProtocolError, decode, encode
from shared.bus.endpoints import Endpoints
from shared.bus.events import BusRefused, Joined, Lost
from shared.bus.inbox import Inbox
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Goodbye, Heartbeat, Hello, Refused, Welcome
from shared.bus.messages.sequences import Proposal
from shared.bus.sockets import (
    CONTROL_QUEUE,
    HEARTBEAT_S,
    LIVENESS_S,
    PROPOSAL_QUEUE,
    BoundFile,
    make_socket,
    readable,
    try_send,
)
from shared.config.sparse_log import SparseWarning

_UNREAD_PROPOSALS = 64
_BATCH = 256  # messages of one socket that are read before the other and the clock have their turn


class BusClient:
    """Joins the bus and stays joined. `hello.incarnation` is `time.monotonic_ns()` taken at process start.

    `receive` is for one thread; the other methods may be called from any.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        hello: Hello,
        proposals: Literal["bind", "connect"] | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._hello = hello
        self._side = proposals
        self._inbox = Inbox(CONTROL_QUEUE, _UNREAD_PROPOSALS)
        self._outbox: deque[tuple[int, bytes]] = deque()
        self._proposals: deque[bytes] = deque(maxlen=PROPOSAL_QUEUE)
        self._session = (
            0  # counts Welcomes; what was meant for an earlier session is never sent into a later one
        )
        self._seen_session = 0  # of the last Joined that `receive` handed out; 0: not joined
        self._overflow = False
        self._busy_since: float | None = None
        self.note = ""  # goes with every heartbeat
        self._goodbye: str | None = None
        self._wake_lock = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._poller.register(self._wake_fd, zmq.POLLIN)
        self._pull: zmq.Socket[bytes] | None = None
        self._push: zmq.Socket[bytes] | None = None
        self._file: BoundFile | None = None
        self._warn = SparseWarning("message dropped")
        self.dropped = 0  # messages and proposals that were not sent

    # --- the service's side ---

    def start(self) -> None:
        """Bind or connect the proposals' socket and start joining. RinglineError when it cannot be bound."""
        if self._side == "bind":
            self._pull = make_socket(self._context, zmq.PULL, PROPOSAL_QUEUE)
            self._file = BoundFile(self._pull, self._endpoints.proposals)
            self._poller.register(self._pull, zmq.POLLIN)
        elif self._side == "connect":
            self._push = make_socket(self._context, zmq.PUSH, PROPOSAL_QUEUE)
            self._push.connect(self._endpoints.proposals)
        self._thread.start()

    def close(self, reason: str) -> None:
        """Send what is queued and a Goodbye, and release everything. Takes about 250 ms at most."""
        self._goodbye = reason
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        for socket in (self._pull, self._push):
            if socket is not None:
                socket.close()
        if self._file is not None:
            self._file.remove()
        self._context.term()
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.close(self._wake_fd)
                self._wake_fd = -1

    def send(self, message: Message) -> None:
        """To context. Dropped while not joined: context's snapshot after Joined makes up for it."""
        if self._seen_session == 0 or self._seen_session != self._session:
            self.dropped += 1
        elif len(self._outbox) >= CONTROL_QUEUE:
            self.dropped += 1
            self._overflow = True
        else:
            self._outbox.append((self._seen_session, encode(message)))
        self._wake()

    def propose(self, proposal: Proposal) -> None:
        """To the verifier. The oldest proposal is dropped when the verifier does not keep up."""
        if len(self._proposals) == PROPOSAL_QUEUE:
            self.dropped += 1
        self._proposals.append(encode(proposal))
        self._wake()

    def receive(self, timeout_s: float) -> Message | Joined | Lost | None:
        """The next message or bus event; None when there is none in `timeout_s`. Raises BusRefused."""
        item = self._inbox.get(timeout_s)
        if isinstance(item, Joined):
            self._seen_session = item.session
        elif isinstance(item, Lost):
            self._seen_session = 0
        return item

    def working(self, busy: bool) -> None:
        """Marks the start and the end of a step of the service's loop, for `Heartbeat.busy_s`."""
        self._busy_since = time.monotonic() if busy else None

    def _wake(self) -> None:
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    # --- the bus thread ---

    def _run(self) -> None:
        number = 0
        try:
            while self._goodbye is None:
                number += 1
                self._live(number)
        except BusRefused as refused:
            self._inbox.fail(refused)
        except Exception as error:  # the service must not wait for ever for a thread that is no more
            self._inbox.fail(error)

    def _live(self, number: int) -> None:
        """One socket's life, from connecting to its loss."""
        socket = make_socket(self._context, zmq.DEALER, CONTROL_QUEUE)
        identity = f"{self._hello.role}-{self._hello.pid}-{self._hello.incarnation:x}-{number}"
        socket.setsockopt(zmq.IDENTITY, identity.encode())
        joined = False
        try:
            socket.connect(self._endpoints.control)
            if not self._greet(socket):
                return
            joined = True
            reason = self._converse(socket)
            if reason is not None:
                self._inbox.put(Lost(reason))
        finally:
            if joined:
                self._session_over()
            self._poller.unregister(socket)
            socket.close()

    def _greet(self, socket: zmq.Socket[bytes]) -> bool:
        """Say Hello once there is a connection and wait for the Welcome. False: try with a new socket."""
        self._poller.register(socket, zmq.POLLOUT)
        while socket not in self._wait(LIVENESS_S):
            if self._goodbye is not None:
                return False
        self._poller.modify(socket, zmq.POLLIN)
        if not try_send(socket, encode(self._hello)):
            return False
        deadline = time.monotonic() + LIVENESS_S
        while self._goodbye is None and (left := deadline - time.monotonic()) > 0:
            if socket in self._wait(left):
                answer = self._read(socket)
                if isinstance(answer, Refused):
                    raise BusRefused(answer)
                if isinstance(answer, Welcome):
                    self._session += 1
                    return self._inbox.put(Joined(answer, self._session))
        if self._goodbye is not None:  # the Welcome may be on its way
            try_send(socket, encode(Goodbye(reason=self._goodbye)))
        return False

    def _converse(self, socket: zmq.Socket[bytes]) -> str | None:
        """Exchange messages. Returns why the link is lost, None when this side closes."""
        last_heard = time.monotonic()
        beat_at = last_heard
        while True:
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + HEARTBEAT_S
                if not try_send(socket, encode(Heartbeat(busy_s=self._busy_s(now), note=self.note))):
                    return "the connection to context is gone"
            if not self._flush(socket):
                return "context does not take messages"
            if self._goodbye is not None:
                try_send(socket, encode(Goodbye(reason=self._goodbye)))
                return None
            ready = self._wait(max(0.0, beat_at - time.monotonic()))
            if socket in ready:
                last_heard = time.monotonic()
                if (reason := self._take(socket)) is not None:
                    return reason
            elif time.monotonic() - last_heard > LIVENESS_S:
                return f"context has been silent for {LIVENESS_S:.0f} s"

    def _take(self, socket: zmq.Socket[bytes]) -> str | None:
        """Move what has arrived to the inbox. Returns why the link is lost, if it is."""
        for _ in range(_BATCH):
            if not readable(socket):
                break
            message = self._read(socket)
            if isinstance(message, Refused):
                raise BusRefused(message)
            if isinstance(message, Goodbye):
                return f"context says: {message.reason}"
            if message is None or isinstance(message, Heartbeat):
                continue
            if not self._inbox.put(message):
                return "messages arrive faster than they are read"
        return None

    def _flush(self, socket: zmq.Socket[bytes]) -> bool:
        """Send the outbox. False when context does not take it."""
        while self._outbox:
            session, frame = self._outbox.popleft()
            if session != self._session:
                self.dropped += 1
            elif not try_send(socket, frame):
                self.dropped += 1
                return False
        overflow, self._overflow = self._overflow, False
        return not overflow

    def _wait(self, timeout_s: float) -> list[zmq.Socket[bytes]]:
        """Sleep until something happens, moving proposals on the way. Returns what is ready."""
        ready = dict(self._poller.poll(math.ceil(timeout_s * 1000)))
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        if self._pull is not None and self._pull in ready:
            self._take_proposals(self._pull)
        while self._push is not None and self._proposals:
            if not try_send(self._push, self._proposals.popleft()):
                self.dropped += 1
        return list(ready)

    def _take_proposals(self, pull: zmq.Socket[bytes]) -> None:
        for _ in range(_BATCH):
            if not readable(pull):
                return
            message = self._read(pull)
            if isinstance(message, Proposal):
                self._inbox.put_proposal(message)

    def _read(self, socket: zmq.Socket[bytes]) -> Message | None:
        """One message; None for bytes that are none."""
        parts = socket.recv_multipart(zmq.NOBLOCK)
        try:
            return decode(parts[-1])
        except ProtocolError as error:
            self._warn(error=str(error))
            return None

    def _busy_s(self, now: float) -> float:
        since = self._busy_since
        return 0.0 if since is None else max(0.0, now - since)

    def _session_over(self) -> None:
        self.dropped += len(self._outbox)
        self._outbox.clear()
        self._overflow = False
