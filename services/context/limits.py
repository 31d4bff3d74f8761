"""What one plant's settings allow, computed once at start."""

from __future__ import annotations

from dataclasses import dataclass

from services.context.records import RecordShape
from services.context.sequence import Ring
from shared.config.settings import MAX_PROFILES, Profile, Settings
from shared.kv import KvGeometry, blocks_of

FINISHED = 64  # requests that are remembered after their end, for a gateway that missed it
_DEFAULT = Profile(name="default", language="en", system=" " * 4096, max_tokens=1024)
_WIDEST = 1 << 17  # of the engine's score buffers
_TEMPLATE_TOKENS = 256  # a chat template adds fewer


@dataclass(frozen=True)
class Limits:
    """`chunk` and `step` are the longest commits of a prefill and of a decoding pass, in positions."""

    n_vocab: int
    n_visible: int  # tokens the model can see at once: sink and window
    chunk: int
    step: int
    max_sequences: int
    max_streams: int
    max_waiting: int
    record: RecordShape

    @classmethod
    def of(cls, settings: Settings, geometry: KvGeometry, n_vocab: int, context_length: int) -> Limits:
        chunk, step = settings.verifier.prefill_chunk, settings.verifier.node_budget + 1
        profiles = (_DEFAULT, *settings.profiles)
        sequences = settings.context.max_sequences + settings.context.max_streams
        longest = max(chunk, step)
        return cls(
            n_vocab=n_vocab,
            n_visible=min(context_length, _WIDEST),
            chunk=chunk,
            step=step,
            max_sequences=settings.context.max_sequences,
            max_streams=settings.context.max_streams,
            max_waiting=settings.context.max_waiting,
            record=RecordShape(
                slots=sequences + settings.context.max_streams + 2 * MAX_PROFILES + FINISHED,
                blocks=min(geometry.n_blocks, max(_table_size(profile, longest) for profile in profiles)),
                tokens=max(_sink_at_most(p) + 2 * p.window + p.max_tokens for p in profiles),
            ),
        )

    def ring(self, sink: int, window: int) -> Ring:
        return Ring.of(sink, window, max(self.chunk, self.step))


def _sink_at_most(profile: Profile) -> int:
    """A byte-level vocabulary never makes more tokens than bytes."""
    return len(profile.system.encode()) + _TEMPLATE_TOKENS


def _table_size(profile: Profile, longest_commit: int) -> int:
    ring = Ring.of(_sink_at_most(profile), profile.window, longest_commit)
    return ring.sink_blocks + blocks_of(ring.capacity)
