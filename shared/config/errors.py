"""The one exception that a user sees."""

from __future__ import annotations

from shared.config.quote import one_line

MAX_MESSAGE = 2000  # characters


class RinglineError(Exception):
    """Something the user can act on. The message is one line: what is wrong, where, and what to do.

    It stays one line, of at most MAX_MESSAGE characters, whatever a name in it holds: line breaks and escape
    codes are shown as such.
    """

    restart_mends = False  # whether the service that ends with it works again after a restart

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message, MAX_MESSAGE))


class RestartNeeded(RinglineError):
    """The service ends and its supervisor is to start it again; nobody has to change anything."""

    restart_mends = True
