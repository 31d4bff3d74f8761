"""Streams: sequences that live as long as their asset and only grow.

    StreamAppend ──▶ checks ──▶ tokens in the record ──▶ StreamAppended
                       │          └──▶ SeqAppend (or SeqOpen, the first time) to verifier and draft
                       └──▶ StreamRefused, with a time to come again

`serial` makes an append idempotent: it is in the record together with the tokens. A stream ends with
StreamClose, with another version of its profile, when the verifier cannot go on with it, for a request that
finds no room beside the streams, or for another asset's stream that finds no place, if it has been silent for
SILENT_S; the one that has been silent longer than all others. The next append opens it anew.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from services.context import opening
from services.context.admitting import RETRY_MAX_S, RETRY_MIN_S, Admitting
from services.context.ledger import Ledger
from services.context.post import Post
from services.context.profiles import Profile, Profiles
from services.context.sequence import Sequence
from shared.bus.messages.requests import StreamAppend, StreamAppended, StreamRefused
from shared.bus.messages.sequences import SeqAppend
from shared.config.sparse_log import SparseWarning
from shared.kv import blocks_of

SILENT_S = 60.0  # shorter pauses do not cost a stream its place, whatever finds none

_log = structlog.get_logger()
Refusal = tuple[str, float | None]  # why, and when to come again (None: never)


class Streams:
    """At most `limits.max_streams`. Each is promised its whole ring when it is opened."""

    def __init__(
        self,
        ledger: Ledger,
        profiles: Profiles,
        admitting: Admitting,
        post: Post,
        clock: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._profiles = profiles
        self._admitting = admitting
        self._post = post
        self._clock = clock
        self._refused = SparseWarning("append refused", clock)

    def all(self) -> list[Sequence]:
        return [sequence for sequence in self._ledger.live.values() if sequence.kind == "stream"]

    def append(self, append: StreamAppend) -> None:
        stream = self._admitting.stream(append.stream)
        if stream is not None and stream.profile != append.profile:
            self._admitting.end_stream(stream, "its profile is another one now")
            stream = None
        self.use(append.stream)
        if stream is not None and append.serial <= stream.serial:
            self._acknowledge(append)
            return
        refused = self._refusal(append, stream)
        if refused is None and stream is None:
            refused = self._open(append)
        elif refused is None and stream is not None:
            self._extend(stream, append)
        if refused is not None:
            self._refuse(append, *refused)
            return
        self._acknowledge(append)

    def use(self, name: str) -> None:
        """An append or a question: the stream is not silent, if there is one."""
        stream = self._admitting.stream(name)
        if stream is not None:
            stream.used = self._clock()

    def close(self, name: str) -> None:
        stream = self._admitting.stream(name)
        if stream is not None:
            self._admitting.end_stream(stream, "closed")
            self._admitting.admit()

    def profile_changed(self, name: str) -> None:
        """Its streams stand on a prefix that is another now."""
        for stream in self.all():
            if stream.profile == name:
                self._admitting.end_stream(stream, "its profile has changed")

    # --- checks ---

    def _refusal(self, append: StreamAppend, stream: Sequence | None) -> Refusal | None:
        profile = self._profiles.get(append.profile)
        wrong = self._wrong(append, profile)
        if wrong is not None or profile is None:
            return wrong or "", None
        if not profile.ready:
            profile.wanted = True
            self._admitting.admit()
            return f'the prefix of profile "{profile.name}" is not computed yet', RETRY_MIN_S
        return self._late(append, stream) if stream is not None else self._crowded()

    def _wrong(self, append: StreamAppend, profile: Profile | None) -> str | None:
        """Why this append can never be taken."""
        if profile is None:
            return f'unknown profile "{append.profile}": register it first'
        if profile.problem:
            return f'profile "{append.profile}": {profile.problem}'
        if len(append.tokens) > profile.ring.window:
            return (
                f"{len(append.tokens)} tokens at once, the window of profile "
                f'"{append.profile}" has {profile.ring.window}: append less'
            )
        n_vocab = self._ledger.limits.n_vocab
        if any(token >= n_vocab for token in append.tokens):
            return f"token {max(append.tokens)} is not in the model's vocabulary of {n_vocab}"
        return None

    def _late(self, append: StreamAppend, stream: Sequence) -> Refusal | None:
        """Why the stream cannot take it now: nothing may grow faster than it is computed."""
        window = stream.ring.window
        if stream.pending and stream.pending + len(append.tokens) > window:
            return f"{stream.pending} tokens are still to be computed, the window has {window}", RETRY_MIN_S
        if stream.pending and self._admitting.asked(stream.stream):
            return f"a question waits until {stream.pending} tokens are computed", RETRY_MIN_S
        if self._overflows(stream, append) and not self._ledger.has_slot():
            return "closed sequences are still held by a writer", RETRY_MIN_S
        return None

    def _crowded(self) -> Refusal | None:
        if len(self._admitting.waiting):
            return "requests wait for memory", self._admitting.retry_s()
        limit = self._ledger.limits.max_streams
        if len(self.all()) >= limit and not self._close_silent():
            return (
                f"{limit} streams are open, context.max_streams allows no more, and none of them has been "
                f"silent for {SILENT_S:.0f} s: close one or raise it",
                RETRY_MAX_S,
            )
        return None

    def _close_silent(self) -> bool:
        """Close the stream that has been silent for the longest time; False when none has for long enough."""
        now = self._clock()
        able = [s for s in self.all() if now - s.used >= SILENT_S and not self._admitting.asked(s.stream)]
        if not able:
            return False
        silent = min(able, key=lambda stream: stream.used)
        reason = f"silent for {now - silent.used:.0f} s, another stream needs its place"
        self._admitting.end_stream(silent, reason)
        return True

    # --- changes ---

    def _open(self, append: StreamAppend) -> Refusal | None:
        """A request must still find room beside the streams: a ring of blocks is left for it."""
        profile = self._profiles.get(append.profile)
        assert profile is not None, "checked before"
        sequence, entries = opening.stream(append, profile, self._ledger, self._clock())
        ring, room = blocks_of(profile.ring.capacity), self._ledger.room(sequence)
        if room < ring or not self._ledger.has_slot():
            if self._ledger.held or self._close_silent():
                return "the blocks of closed sequences are still to come", RETRY_MIN_S
            needed = sequence.worst_blocks() - len(sequence.blocks)
            reason = (
                f"the stream needs {needed} blocks and a question on it {ring}, "
                f"{max(0, self._ledger.available())} of {self._ledger.pool.total} are available: "
                "close a stream, lower the profile's window or raise context.pool_mb"
            )
            return reason, self._admitting.retry_s()
        self._admitting.open(sequence, entries)
        _log.info("stream opened", stream=append.stream, profile=append.profile)
        return None

    def _extend(self, stream: Sequence, append: StreamAppend) -> None:
        known = stream.known
        if self._overflows(stream, append):
            self._ledger.forget_tokens(stream, stream.ring.window + stream.pending)
        stream.tokens += append.tokens
        stream.serial, stream.prompt_len = append.serial, stream.known
        first = self._ledger.grow(stream)
        self._ledger.save(stream)
        blocks = stream.blocks[first:]
        self._post.writers(
            SeqAppend(seq=stream.seq, known=known, tokens=append.tokens, first_block=first, blocks=blocks)
        )

    def _overflows(self, stream: Sequence, append: StreamAppend) -> bool:
        return len(stream.tokens) + len(append.tokens) > self._ledger.limits.record.tokens

    # --- answers ---

    def _acknowledge(self, append: StreamAppend) -> None:
        self._post.gateway(StreamAppended(stream=append.stream, serial=append.serial))

    def _refuse(self, append: StreamAppend, reason: str, retry_after_s: float | None) -> None:
        self._refused(stream=append.stream, reason=reason, retry_after_s=retry_after_s)
        refused = StreamRefused(
            stream=append.stream, serial=append.serial, reason=reason, retry_after_s=retry_after_s
        )
        self._post.gateway(refused)
