"""Where the sockets are: two files in one private directory.

<paths.runtime>/control.sock     context's ROUTER
<paths.runtime>/proposals.sock   verifier's PULL
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from shared.config.errors import RinglineError
from shared.config.settings import Paths

MAX_SOCKET_PATH = 107  # sun_path of struct sockaddr_un without its terminating zero
_NEW = ".new"  # a socket is bound under this suffix and then renamed (shared.bus.sockets)


@dataclass(frozen=True)
class Endpoints:
    """ZeroMQ addresses of the bus."""

    control: str
    proposals: str

    @classmethod
    def of(cls, paths: Paths) -> Endpoints:
        """The endpoints in `paths.runtime`, which is made (0700) when it is missing."""
        runtime = paths.runtime.absolute()
        files = (runtime / "control.sock", runtime / "proposals.sock")
        longest = max(len(os.fsencode(file)) for file in files) + len(_NEW)
        if longest > MAX_SOCKET_PATH:
            raise RinglineError(
                f'paths.runtime = "{runtime}" makes a socket path of {longest} bytes and the system allows '
                f"{MAX_SOCKET_PATH}: set a shorter directory, e.g. /run/ringline"
            )
        _make_private(runtime)
        return cls(*(f"ipc://{file}" for file in files))


def socket_file(endpoint: str) -> Path:
    return Path(endpoint.removeprefix("ipc://"))


def staging_file(endpoint: str) -> Path:
    file = socket_file(endpoint)
    return file.with_name(file.name + _NEW)


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise RinglineError(
            f'paths.runtime = "{directory}" cannot be made: {error.strerror}; '
            "set paths.runtime to a directory this user may create"
        ) from None
    if status.st_uid != os.geteuid() or not os.access(directory, os.W_OK):
        raise RinglineError(f'paths.runtime = "{directory}" belongs to another user; set another directory')
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise RinglineError(
            f'paths.runtime = "{directory}" is open to other users (mode {mode:04o}): '
            "chmod 700 it or set another directory"
        )
