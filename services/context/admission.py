"""Who can never be let in: what a request can need is known before it starts. Pure."""

from __future__ import annotations

from services.context.limits import Limits
from services.context.profiles import Profile
from shared.bus.messages.requests import Submit


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
