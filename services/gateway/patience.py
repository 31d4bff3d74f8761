"""How long the gateway waits for context before it speaks again."""

from __future__ import annotations

QUIET_S = 30.0  # after that long without a word about a request or an append it is sent again
_RETRY_S = (0.2, 60.0)


def retry_wait(asked: float | None) -> float:
    """Seconds until what context refused is sent again. `asked`: what its refusal says, None: for ever."""
    shortest, longest = _RETRY_S
    return longest if asked is None else min(longest, max(shortest, asked))
