"""Profiles: a system prompt's tokens, computed once, pinned, and shared by all its requests.

    registered ──blocks are there──▶ computing ──all in the pool──▶ ready (pinned)
         ▲                               │ the verifier failed
         └──────── asked for again ──────┘

A plant that renames its profiles registers new names for ever. When there are too many, the one that was not
registered for the longest time goes, of those that no sequence and no waiting request uses.

The sink's last block is pinned too, although it may be partly filled: the ring begins in the next block, so
nobody ever writes behind the prefix in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import structlog

from services.context.ledger import Ledger
from services.context.sequence import UNOPENED, Ring, Sequence
from shared.bus.messages.requests import RegisterProfile
from shared.config.settings import MAX_PROFILES

_NO_SLOT = -1

_log = structlog.get_logger()


@dataclass
class Profile:
    """`problem`: why its prefix can never be computed. `wanted`: compute it as soon as there is room."""

    name: str
    tokens: list[int]
    ring: Ring
    problem: str = ""
    wanted: bool = True
    computing: Sequence | None = None
    prefix: Sequence | None = None  # the finished sequence whose blocks are pinned
    pin_slot: int = _NO_SLOT

    @property
    def ready(self) -> bool:
        return self.prefix is not None or not self.tokens

    @property
    def draft_kv_len(self) -> int:
        """Positions of the prefix that the draft's plane has."""
        return min(self.prefix.draft_kv_len, self.ring.sink) if self.prefix else 0


class Profiles:
    """The registered profiles, at most MAX_PROFILES, the latest registered last."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._by_name: dict[str, Profile] = {}

    def get(self, name: str) -> Profile | None:
        return self._by_name.get(name)

    def all(self) -> list[Profile]:
        return list(self._by_name.values())

    def register(
        self, message: RegisterProfile, waited_for: Collection[str] = ()
    ) -> tuple[Profile | None, Sequence | None]:
        """The profile (None: there are too many), and the computation of its older version to be ended.

        `waited_for`: names that requests wait for."""
        old = self._by_name.pop(message.profile, None)
        if old is not None:
            self._by_name[old.name] = old
        if old and old.tokens == message.tokens and old.ring.window == message.window:
            old.wanted = True
            return old, None
        if old is None and len(self._by_name) >= MAX_PROFILES and not self._evict(waited_for):
            return None, None
        ring = self._ledger.limits.ring(len(message.tokens), message.window)
        profile = Profile(message.profile, list(message.tokens), ring)
        profile.problem = self._problem(profile)
        self._by_name[profile.name] = profile
        if old is None:
            return profile, None
        self._unpin(old)
        return profile, old.computing

    def serves(self, request: Sequence) -> bool:
        """Whether its profile's prefix is still the one that it began with."""
        profile = self._by_name.get(request.profile)
        if profile is None or profile.ring != request.ring:
            return False
        return request.tokens[: len(profile.tokens)] == profile.tokens

    def candidate(self, profile: Profile, now: float) -> Sequence | None:
        """The sequence that would compute the prefix; None when none is wanted."""
        if not profile.wanted or profile.ready or profile.computing or profile.problem:
            return None
        return Sequence(
            seq=UNOPENED,
            request_id="",
            profile=profile.name,
            severity=3,
            ring=profile.ring,
            tokens=list(profile.tokens),
            prompt_len=len(profile.tokens),
            max_tokens=0,
            stop_tokens=[],
            started=now,
        )

    def start(self, profile: Profile, sequence: Sequence, new_id: Callable[[], int]) -> None:
        """Compute the prefix with this candidate. The ledger has room for it."""
        sequence.seq = new_id()
        self._ledger.open(sequence)
        profile.computing = sequence

    def computed(self, sequence: Sequence) -> None:
        """The prefix is in the pool: pin it. The sequence itself can be closed now."""
        profile = self._by_name[sequence.profile]
        profile.computing = None
        profile.prefix = sequence
        profile.pin_slot = self._ledger.pin(sequence)

    def failed(self, sequence: Sequence) -> None:
        profile = self._by_name[sequence.profile]
        profile.computing = None
        profile.wanted = False

    def drafted(self, name: str, kv_len: int) -> None:
        """Some sequence's draft plane has come to `kv_len`: so far the shared prefix is filled, too."""
        profile = self._by_name.get(name)
        if profile is None or profile.prefix is None or kv_len <= profile.prefix.draft_kv_len:
            return
        profile.prefix.draft_kv_len = min(kv_len, profile.ring.sink)
        self._ledger.save_pin(profile.pin_slot, profile.prefix)

    def adopt(self, profile: Profile) -> None:
        """Take over a profile of an earlier owner."""
        self._by_name[profile.name] = profile

    def _evict(self, waited_for: Collection[str]) -> bool:
        used = {sequence.profile for sequence in self._ledger.live.values()}.union(waited_for)
        idle = next((profile for name, profile in self._by_name.items() if name not in used), None)
        if idle is None:
            return False
        _log.info("profile forgotten: it was not registered for the longest time", profile=idle.name)
        self._unpin(idle)
        del self._by_name[idle.name]
        return True

    def _unpin(self, profile: Profile) -> None:
        if profile.prefix is not None:
            self._ledger.unpin(profile.name, profile.pin_slot)

    def _problem(self, profile: Profile) -> str:
        limits, sink, window = self._ledger.limits, profile.ring.sink, profile.ring.window
        pool_blocks = self._ledger.pool.total
        if window < 1 or sink + window > limits.n_visible:
            return (
                f"its prefix of {sink} and window of {window} tokens make {sink + window}, the model sees "
                f"{limits.n_visible}: lower the profile's window"
            )
        if any(token >= limits.n_vocab for token in profile.tokens):
            return f"a token of its prefix is not in the model's vocabulary of {limits.n_vocab}"
        if profile.ring.sink_blocks >= min(pool_blocks, limits.record.blocks) or sink > limits.record.tokens:
            return (
                f"its prefix of {sink} tokens does not fit: the pool has {pool_blocks} blocks of 16 and a "
                f"record {limits.record.tokens} tokens; raise context.pool_mb, or restart context after "
                "changing the profiles"
            )
        return ""
