"""From messages to calls: who may say what, and whom an answer goes to."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from services.context.pool_map import pool_reply
from services.context.sessions import Sessions
from services.context.status import status_reply
from services.context.writers import Writers
from shared.bus.events import PeerJoined, PeerLost
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Cancel, RegisterProfile, StreamAppend, StreamClose, Submit
from shared.bus.messages.sequences import Commit, CommitFailed, PlaneFilled, SeqReleased
from shared.bus.messages.status import PoolRequest, StatusRequest
from shared.bus.server import Peer
from shared.config.sparse_log import SparseWarning
from shared.kv import Segment
from shared.kv.locks import Writer

_log = structlog.get_logger()


class Protocol:
    """`reply` sends to one peer; `peers` are those joined now."""

    def __init__(
        self,
        sessions: Sessions,
        writers: Writers,
        segment: Segment,
        reply: Callable[[Peer, Message], None],
        peers: Callable[[], list[Peer]],
    ) -> None:
        self._sessions = sessions
        self._writers = writers
        self._segment = segment
        self._reply = reply
        self._peers = peers
        self._ignored = SparseWarning("message ignored")

    def handle(self, peer: Peer, event: Message | PeerJoined | PeerLost) -> None:
        if isinstance(event, PeerJoined):
            self._joined(peer)
        elif isinstance(event, PeerLost):
            self._lost(peer, event.reason)
        elif not self._request(peer, event):
            self._ignored(role=peer.role, message=type(event).__name__)

    def _joined(self, peer: Peer) -> None:
        if peer.role == "status":
            return
        _log.info("joined", role=peer.role, pid=peer.pid)
        if peer.role == "gateway":
            self._sessions.gateway_joined()
        writer = _writer(peer)
        for message in self._writers.joined(writer) if writer else ():
            self._reply(peer, message)

    def _lost(self, peer: Peer, reason: str) -> None:
        if peer.role == "status":
            return
        _log.info("lost", role=peer.role, pid=peer.pid, reason=reason)
        if writer := _writer(peer):
            self._writers.lost(writer)

    def _request(self, peer: Peer, message: Message) -> bool:
        """Whether this peer may send this message; if so it is done."""
        match peer.role:
            case "verifier":
                return self._from_verifier(peer, message)
            case "draft":
                return self._from_draft(peer, message)
            case "gateway":
                return self._from_gateway(message)
            case "status":
                return self._from_status(peer, message)

    def _from_verifier(self, peer: Peer, message: Message) -> bool:
        match message:
            case Commit():
                self._sessions.commit(message)
            case CommitFailed(seq=seq, epoch=epoch, reason=reason):
                self._sessions.commit_failed(seq, epoch, reason)
            case _:
                return self._from_writer(peer, message)
        return True

    def _from_draft(self, peer: Peer, message: Message) -> bool:
        if isinstance(message, PlaneFilled):
            self._sessions.plane_filled(message.seq, message.kv_len)
            return True
        return self._from_writer(peer, message)

    def _from_writer(self, peer: Peer, message: Message) -> bool:
        writer = _writer(peer)
        if writer is None or not isinstance(message, SeqReleased):
            return False
        self._writers.released(writer, message.seq)
        return True

    def _from_gateway(self, message: Message) -> bool:
        match message:
            case RegisterProfile():
                self._sessions.register(message)
            case Submit():
                self._sessions.submit(message)
            case Cancel(request_id=request_id):
                self._sessions.cancel(request_id)
            case StreamAppend():
                self._sessions.streams.append(message)
            case StreamClose(stream=stream):
                self._sessions.streams.close(stream)
            case _:
                return False
        return True

    def _from_status(self, peer: Peer, message: Message) -> bool:
        match message:
            case StatusRequest():
                self._reply(peer, status_reply(self._sessions, self._segment, self._peers()))
            case PoolRequest():
                self._reply(peer, pool_reply(self._sessions, self._segment))
            case _:
                return False
        return True


def _writer(peer: Peer) -> Writer | None:
    if peer.role == "verifier" or peer.role == "draft":
        return peer.role, peer.pid
    return None
