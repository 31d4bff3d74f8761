"""Context's end of the bus in tests of the gateway: it talks and computes nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.bus.endpoints import Endpoints
from shared.bus.events import PeerJoined, PeerLost
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import (
    Accepted,
    Cancel,
    Finished,
    RegisterProfile,
    Rejected,
    StreamAppend,
    StreamAppended,
    StreamClose,
    StreamRefused,
    Submit,
    Tokens,
)
from shared.bus.server import BusServer, Peer
from shared.config.settings import Paths


class TalkingContext:
    """Context's end of the bus. Answers each request with the first tokens of its own prompt's text part.

    `script(submit)` may say otherwise: it returns the messages to send. Streams outlive a stop, as they do in
    context; `append_script(append)` returns what to say about one, `keep` puts it into its stream.
    """

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.log: queue.Queue[Message] = queue.Queue()
        self.submits: list[Submit] = []
        self.profiles: set[str] = set()
        self.script: Callable[[Submit], list[Message]] = answer
        self.appends: list[StreamAppend] = []
        self.streams: dict[str, StreamAppend] = {}  # with all tokens, and the last serial
        self.closed: list[str] = []
        self.append_script: Callable[[StreamAppend], list[Message]] = self.keep
        self.order: list[str] = []  # streams and request ids as they came

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        self.profiles = set()
        endpoints = Endpoints.of(Paths(runtime=self._runtime))
        server = BusServer(endpoints, time.monotonic_ns(), 1, lambda _hello: None)
        try:
            while not self._stop.is_set():
                for peer, event in server.poll(0.02):
                    self._on(server, peer, event)
        finally:
            server.close()

    def _on(self, server: BusServer, peer: Peer, event: Message | PeerJoined | PeerLost) -> None:
        match event:
            case RegisterProfile():
                self.profiles.add(event.profile)
            case Submit():
                assert event.profile in self.profiles, "a request before its profile"
                self.submits.append(event)
                self.order.append(event.request_id)
                for reply in self.script(event):
                    server.send(peer, reply)
            case StreamAppend():
                assert event.profile in self.profiles, "an append before its profile"
                self.appends.append(event)
                self.order.append(event.stream)
                for reply in self.append_script(event):
                    server.send(peer, reply)
            case StreamClose():
                self.closed.append(event.stream)
                self.streams.pop(event.stream, None)
            case Cancel():
                self.log.put(event)

    def keep(self, append: StreamAppend) -> list[Message]:
        held = self.streams.get(append.stream)
        if held is None:
            self.streams[append.stream] = append
        elif append.serial > held.serial:
            self.streams[append.stream] = append.model_copy(update={"tokens": held.tokens + append.tokens})
        return [StreamAppended(stream=append.stream, serial=append.serial)]


def refused(append: StreamAppend, retry_after_s: float | None) -> StreamRefused:
    return StreamRefused(
        stream=append.stream, serial=append.serial, reason="no memory", retry_after_s=retry_after_s
    )


def answer(submit: Submit, count: int = 12) -> list[Message]:
    """Tokens in two messages, then the end."""
    tokens = submit.tokens[-count - 8 : -8]
    half = len(tokens) // 2
    return [
        Accepted(request_id=submit.request_id, cached_tokens=0),
        Tokens(request_id=submit.request_id, index=0, tokens=tokens[:half]),
        Tokens(request_id=submit.request_id, index=half, tokens=tokens[half:]),
        finished(submit, len(tokens)),
    ]


def long_answer(submit: Submit) -> list[Message]:
    """About a thousand characters, in one message."""
    tokens = submit.tokens[-20:-8] * 20
    return [Tokens(request_id=submit.request_id, index=0, tokens=tokens), finished(submit, len(tokens))]


def finished(submit: Submit, count: int, reason: Any = "stop", detail: str = "") -> Finished:
    return Finished(
        request_id=submit.request_id,
        reason=reason,
        detail=detail,
        prompt_tokens=len(submit.tokens),
        answer_tokens=count,
        cached_tokens=0,
        passes=count,
        drafted=0,
        accepted=0,
    )


def rejected(submit: Submit, retry_after_s: float | None) -> Rejected:
    return Rejected(request_id=submit.request_id, reason="the queue is full", retry_after_s=retry_after_s)
