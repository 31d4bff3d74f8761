"""New sequences, before it is known whether there is room for them. Nothing is taken from the pool here.

plain     prefix │ cached chain │ to be computed            shares: the pinned prefix and the chain
resumed   prefix │ cached chain │ prompt and answer so far, to be computed
fork      everything its stream has computed │ the question shares: the stream's whole table
"""

from __future__ import annotations

from services.context.chains import cached_start
from services.context.ledger import Ledger
from services.context.prefix_cache import Chain, Entry
from services.context.profiles import Profile
from services.context.sequence import UNOPENED, Sequence
from services.context.waiting import Waiting
from shared.bus.messages.requests import StreamAppend


def plain(ledger: Ledger, waiting: Waiting, profile: Profile, now: float) -> tuple[Sequence, list[Entry]]:
    """A request behind its profile's prefix and what the cache has of it; the cached blocks it uses."""
    sequence = _request(waiting, profile, now)
    sequence.tokens = list(waiting.submit.tokens)
    sequence.prompt_len = len(sequence.tokens)
    if waiting.paused is not None:
        _resume(sequence, waiting.paused)
    entries = _on_prefix(ledger, sequence, profile)
    if waiting.paused is None:
        sequence.cached_tokens = sequence.kv_len
    return sequence, entries


def fork(ledger: Ledger, waiting: Waiting, profile: Profile, parent: Sequence, now: float) -> Sequence:
    """A request behind everything its stream holds. `parent` has nothing pending: no commit is under way."""
    sequence = _request(waiting, profile, now)
    tail = waiting.submit.tokens[len(profile.tokens) :]
    kept = ledger.limits.record.tokens - len(tail) - waiting.submit.max_tokens
    sequence.first = max(parent.first, parent.known - min(kept, profile.ring.window))
    sequence.tokens = parent.tokens[sequence.first - parent.first :] + tail
    sequence.prompt_len = sequence.known
    sequence.kv_len = sequence.cached_tokens = parent.kv_len
    sequence.draft_kv_len = parent.draft_kv_len
    sequence.blocks = list(parent.blocks)
    sequence.chain = Chain(parent.chain.length, parent.chain.tip, parent.chain.closed)
    sequence.forked = True
    return sequence


def stream(
    append: StreamAppend, profile: Profile, ledger: Ledger, now: float
) -> tuple[Sequence, list[Entry]]:
    """A stream that begins with this append."""
    sequence = Sequence(
        seq=UNOPENED,
        request_id="",
        profile=profile.name,
        severity=0,
        ring=profile.ring,
        tokens=profile.tokens + append.tokens,
        prompt_len=len(profile.tokens) + len(append.tokens),
        max_tokens=0,
        stop_tokens=[],
        stream=append.stream,
        serial=append.serial,
        used=now,
        started=now,
    )
    return sequence, _on_prefix(ledger, sequence, profile)


def _request(waiting: Waiting, profile: Profile, now: float) -> Sequence:
    submit = waiting.submit
    return Sequence(
        seq=UNOPENED,
        request_id=submit.request_id,
        profile=profile.name,
        severity=submit.severity,
        ring=profile.ring,
        tokens=[],
        prompt_len=0,
        max_tokens=submit.max_tokens,
        stop_tokens=list(submit.stop_tokens),
        stop=list(submit.stop),
        sampling=submit.sampling,
        started=now,
        deadline=waiting.deadline,
        followed=True,
    )


def _on_prefix(ledger: Ledger, sequence: Sequence, profile: Profile) -> list[Entry]:
    entries = cached_start(ledger.cache, sequence, profile.draft_kv_len)
    sequence.blocks = [*ledger.pins.get(profile.name, []), *(entry.block for entry in entries)]
    return entries


def _resume(sequence: Sequence, paused: Sequence) -> None:
    """The same request under a new sequence: what has been said stays said."""
    sequence.tokens = list(paused.tokens)
    sequence.started = paused.started
    sequence.followed = paused.followed
    sequence.cached_tokens = paused.cached_tokens
    sequence.passes = paused.passes
    sequence.drafted = paused.drafted
    sequence.accepted = paused.accepted
