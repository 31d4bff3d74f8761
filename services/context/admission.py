"""Who is let in, and who waits: what a request can need is known before it starts."""

from __future__ import annotations

from collections.abc import Iterator

from services.context.limits import Limits
from services.context.profiles import Profile
from services.context.sequence import Sequence
from shared.bus.messages import Submit


class WaitingQueue:
    """Bounded; the most severe first, the earliest among equals."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: dict[str, Submit] = {}  # by request id, in order of arrival

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    def __iter__(self) -> Iterator[Submit]:
        return iter(sorted(self._waiting.values(), key=lambda submit: -submit.severity))

    def push(self, submit: Submit) -> Submit | None:
        """Add it. Returns who finds no place: the least severe, and the latest among equals; maybe itself."""
        self._waiting[submit.request_id] = submit
        if len(self._waiting) <= self._capacity:
            return None
        loser = min(reversed(self._waiting.values()), key=lambda waiting: waiting.severity)
        return self._waiting.pop(loser.request_id)

    def remove(self, request_id: str) -> Submit | None:
        return self._waiting.pop(request_id, None)


def refusal(submit: Submit, profile: Profile | None, limits: Limits, pool_blocks: int) -> str | None:
    """Why this request can never be answered here; None when it can."""
    if profile is None:
        return f'unknown profile "{submit.profile}": register it first'
    if profile.problem:
        return f'profile "{submit.profile}": {profile.problem}'
    return _bad_prompt(submit, profile, limits) or _too_large(submit, profile, limits, pool_blocks)


def _bad_prompt(submit: Submit, profile: Profile, limits: Limits) -> str | None:
    tokens, prefix = submit.tokens, profile.tokens
    visible = profile.ring.sink + profile.ring.window
    if len(tokens) > visible:
        return (
            f"the prompt has {len(tokens)} tokens, sink and window of profile "
            f'"{submit.profile}" hold {visible}: shorten it or raise the profile\'s window'
        )
    if tokens[: len(prefix)] != prefix:
        return f'the prompt does not begin with the prefix of profile "{submit.profile}"'
    if len(tokens) == len(prefix):
        return "the prompt has nothing behind the profile's prefix"
    if max(tokens) >= limits.n_vocab:
        return f"token {max(tokens)} is not in the model's vocabulary of {limits.n_vocab}"
    return None


def _too_large(submit: Submit, profile: Profile, limits: Limits, pool_blocks: int) -> str | None:
    end = len(submit.tokens) + submit.max_tokens
    if end > limits.record.tokens:
        return (
            f"prompt and answer together may have {end} tokens, {limits.record.tokens} are possible: "
            "lower max_tokens, or restart context after changing the profiles"
        )
    blocks = profile.ring.table_size(end)
    if blocks > min(pool_blocks, limits.record.blocks):
        return f"it may need {blocks} blocks and the pool has {pool_blocks}: raise context.pool_mb"
    return None


def sequence_for(submit: Submit, profile: Profile, seq: int, now: float) -> Sequence:
    """The sequence of an admitted request, its computed prefix already in the pool."""
    return Sequence(
        seq=seq,
        request_id=submit.request_id,
        profile=profile.name,
        severity=submit.severity,
        ring=profile.ring,
        tokens=list(submit.tokens),
        prompt_len=len(submit.tokens),
        max_tokens=submit.max_tokens,
        stop_tokens=list(submit.stop_tokens),
        kv_len=profile.ring.sink,
        draft_kv_len=profile.draft_kv_len,
        cached_tokens=profile.ring.sink,
        started=now,
        label=submit.label,
        followed=True,
    )
