"""The one place that makes ZeroMQ sockets, so that every socket has its limits."""

from __future__ import annotations

import os
from pathlib import Path

import zmq

from shared.bus.codec import MAX_FRAME
from shared.bus.endpoints import socket_file, staging_file
from shared.config.errors import RinglineError

CONTROL_QUEUE = 4096  # messages; a peer that is further behind is dropped and gets a snapshot when it rejoins
PROPOSAL_QUEUE = 8  # proposals; older ones are worth nothing
HEARTBEAT_S = 1.0
LIVENESS_S = 3.0
_LINGER_MS = 250  # for the last goodbye; closing never takes longer


def make_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, queue: int) -> zmq.Socket[bytes]:
    """A socket that never blocks for ever, holds at most `queue` messages and closes within 250 ms."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, _LINGER_MS)
    socket.setsockopt(zmq.SNDHWM, queue)
    socket.setsockopt(zmq.RCVHWM, queue)
    socket.setsockopt(zmq.SNDTIMEO, 0)
    socket.setsockopt(zmq.RCVTIMEO, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
    if kind in (zmq.DEALER, zmq.PUSH):
        # Without a connection a send fails at once instead of filling a queue that is stale when it is read.
        socket.setsockopt(zmq.IMMEDIATE, 1)
    if kind == zmq.ROUTER:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    return socket


def readable(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def try_send(socket: zmq.Socket[bytes], *parts: bytes) -> bool:
    """False when there is no peer, or it does not take messages.

    A non-blocking send looks only now and then whether a full pipe has been drained: its first refusal may be
    out of date; asking for EVENTS looks.
    """
    for _attempt in range(2):
        try:
            socket.send_multipart(parts, zmq.NOBLOCK)
            return True
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            if error.errno != zmq.EAGAIN:
                raise
        if not int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT:
            return False
    return False


class BoundFile:
    """A socket file (0600) that replaces what a dead owner left and is removed only by its own owner.

    libzmq unlinks the path it bound when it closes, even if another process has bound it since. So it binds a
    staging name, which is then renamed: the rename is atomic, and closing finds the staging name gone.
    """

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str) -> None:
        self._path: Path = socket_file(endpoint)
        staged = staging_file(endpoint)
        try:
            socket.bind(f"ipc://{staged}")
            staged.chmod(0o600)
            self._inode = staged.stat().st_ino
            staged.rename(self._path)
        except (OSError, zmq.ZMQError) as error:
            raise RinglineError(f"cannot bind {self._path}: {os.strerror(error.errno or 0)}") from None

    def remove(self) -> None:
        try:
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            pass
