"""The one exception that a user sees."""

from __future__ import annotations


class RinglineError(Exception):
    """Something the user can act on. The message is one line: what is wrong, where, and what to do."""
