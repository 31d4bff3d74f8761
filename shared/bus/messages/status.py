"""What context answers to `ringline status` and `ringline pool`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import FailFast, Field

from shared.bus.messages.fields import Count, Duration, Label, Message, Name, SeqId, Text


class StatusRequest(Message):
    pass


class ServiceStatus(Message):
    role: Name
    pid: Count
    alive: bool
    age_s: Duration
    busy_s: Duration
    note: Text = ""


class SequenceStatus(Message):
    seq: SeqId
    request_id: Label  # "" for a profile's prefix
    profile: Label
    tokens: Count
    kv_len: Count
    blocks: Count
    shared_blocks: Count
    label: Label = ""  # the alarm's id


class CacheStatus(Message):
    """Since context's start. Tokens are those of prompts behind their profile's prefix."""

    hit_tokens: Count = 0
    miss_tokens: Count = 0
    hit_blocks: Count = 0
    inserted_blocks: Count = 0
    evicted_blocks: Count = 0
    replaced_blocks: Count = 0  # in a table, by one of its own, before a shared block was written to


class StatusReply(Message):
    generation: Count
    pool_bytes: Count
    kv: Literal["f16", "int8"] = "f16"  # how the pool holds keys and values
    blocks_total: Count
    blocks_free: Count
    blocks_pinned: Count
    blocks_peak: Count  # most blocks in use at once since start
    waiting: Count
    blocks_cached: Count = 0  # in the prefix cache, whether or not a sequence holds them too
    preempted: Count = 0  # requests that had to make room for a critical one, since start
    cache: CacheStatus = CacheStatus()
    services: Annotated[list[ServiceStatus], Field(max_length=64), FailFast()]
    sequences: Annotated[list[SequenceStatus], Field(max_length=1024), FailFast()]


class PoolRequest(Message):
    pass


class PoolSequence(Message):
    """A live sequence, or the pinned prefix of a profile. `shares`: blocks that others hold, too."""

    seq: SeqId
    kind: Literal["request", "stream", "prefix"]
    name: Label  # request id, stream or profile
    profile: Label
    known: Count
    kv_len: Count
    sink: Count
    window: Count
    ring: Count
    ring_position: Count  # where the next position goes, counted from the ring's start
    blocks: Count
    shares: Count


class PoolReply(Message):
    """Each block is counted once: free, only cached, pinned, in one table (private), in several (shared)."""

    generation: Count
    planes: Annotated[list[Label], Field(max_length=8), FailFast()]
    block_bytes: Count
    blocks_total: Count
    blocks_free: Count
    blocks_cached: Count
    blocks_pinned: Count
    blocks_private: Count
    blocks_shared: Count
    blocks_promised: Count  # of the free and cached ones: live sequences may still need them
    cache: CacheStatus
    sequences: Annotated[list[PoolSequence], Field(max_length=1024), FailFast()]
