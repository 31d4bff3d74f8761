"""Where the sockets are: two files in one private directory.

<paths.runtime>/control.sock     context's ROUTER
<paths.runtime>/proposals.sock   verifier's PULL

Each has another name for the moment in which it is bound (shared.bus.sockets).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shared.config.directories import make_private
from shared.config.errors import RinglineError
from shared.config.settings import Paths

MAX_SOCKET_PATH = 107  # sun_path of struct sockaddr_un without its terminating zero
_NEW = ".new"


@dataclass(frozen=True)
class Endpoints:
    """ZeroMQ addresses of the bus."""

    control: str
    proposals: str

    @classmethod
    def of(cls, paths: Paths) -> Endpoints:
        """The endpoints in `paths.runtime`, which is made (0700) when it is missing."""
        endpoints = cls.named(paths)
        make_private(paths.runtime.absolute(), "paths.runtime")
        return endpoints

    @classmethod
    def named(cls, paths: Paths) -> Endpoints:
        """The endpoints, nothing being made. RinglineError when their paths are too long."""
        runtime = paths.runtime.absolute()
        files = (runtime / "control.sock", runtime / "proposals.sock")
        longest = max(len(os.fsencode(file)) for file in files) + len(_NEW)
        if longest > MAX_SOCKET_PATH:
            raise RinglineError(
                f'paths.runtime = "{runtime}" makes a socket path of {longest} bytes and the system allows '
                f"{MAX_SOCKET_PATH}: set a shorter directory, e.g. /run/ringline"
            )
        return cls(*(f"ipc://{file}" for file in files))

    def bound_by(self, role: str) -> list[Path]:
        """The files that a process of that role makes, and leaves when it is killed."""
        endpoints = {"context": [self.control], "verifier": [self.proposals]}.get(role, [])
        return [file for endpoint in endpoints for file in (socket_file(endpoint), staging_file(endpoint))]


def socket_file(endpoint: str) -> Path:
    return Path(endpoint.removeprefix("ipc://"))


def staging_file(endpoint: str) -> Path:
    file = socket_file(endpoint)
    return file.with_name(file.name + _NEW)
