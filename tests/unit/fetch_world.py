"""A small model to fetch, and a hub on loopback with the faults of real ones."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from shared.model.catalogue import Entry, HubFile, Package

BODY = bytes(range(256)) * 400
ENTRY = Entry(
    name="tiny",
    use="test",
    size=len(BODY),
    sha256=hashlib.sha256(BODY).hexdigest(),
    licence="Apache-2.0",
    hub=HubFile("org/tiny", "main", "hub-tiny.gguf"),
    packages=(
        Package("ringline-fake-part1", "1.0", "*/data/part01.bin", 60_000),
        Package("ringline-fake-part2", "1.0", "*/data/part02.bin", len(BODY) - 60_000),
    ),
)


class Hub:
    """`breaks`: how many answers end half-way. `fault`: what it does besides."""

    def __init__(self) -> None:
        self.body, self.breaks, self.ranges = BODY, 0, list[str]()
        self.fault = ""  # or "ignores ranges", "never answers", "stops" after 1000 bytes, "drips" bytes
        self.end = threading.Event()  # of the faults that take time

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.ranges.append(request.headers.get("Range", ""))
        if self.fault == "never answers":
            self.end.wait(20)
            return
        start = int(self.ranges[-1].removeprefix("bytes=").rstrip("-"))
        start = 0 if self.fault == "ignores ranges" else start
        rest = self.body[start:]
        request.send_response(200 if self.fault == "ignores ranges" else 206)
        request.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        request.send_header("Content-Length", str(len(rest)))
        request.end_headers()
        self.breaks -= 1
        self._write(request, rest[: len(rest) // 2] if self.breaks >= 0 else rest)

    def _write(self, request: BaseHTTPRequestHandler, rest: bytes) -> None:
        if self.fault == "drips":
            for byte in rest:
                request.wfile.write(bytes([byte]))
                if self.end.wait(0.01):
                    return
        elif self.fault == "stops":
            request.wfile.write(rest[:1000])
            self.end.wait(20)
        else:
            request.wfile.write(rest)


@contextmanager
def served(hub: Hub) -> Iterator[str]:
    """The hub's address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A client that had enough is what some tests are about."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        hub.end.set()
        server.shutdown()
        thread.join()
