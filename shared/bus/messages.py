"""Every message on the bus: one frozen type per intent, schema-checked when it is decoded.

    gateway ──Submit, RegisterProfile, Cancel──▶ context ──SeqOpen, SeqState, SeqClose──▶ verifier, draft
    gateway ◀──Accepted, Rejected, Tokens, Finished── context ◀──Commit── verifier
    gateway ──StreamAppend, StreamClose──▶ context ──SeqAppend──▶ verifier, draft
    gateway ◀──StreamAppended, StreamRefused── context
                                                      context ◀──PlaneFilled── draft
                                                      context ◀──SeqReleased── verifier, draft
    draft ──Proposal──▶ verifier            (the one channel that does not pass through context)

A sequence's tokens are `tokens[0 .. n)`. K/V of positions `[0, kv_len)` is in the pool. While a sequence
decodes, `n == kv_len + 1`: the last token, the *root*, is known but not yet computed. `epoch` counts the
commits of a sequence; a message that carries an epoch belongs to the state after that many commits.

Everything in a message has a limit, so whatever can be made also fits into a frame (shared.bus.codec).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field

from shared.config.quote import one_line
from shared.config.values import (
    MAX_STOPS,
    Acceptance,
    MinP,
    RepetitionPenalty,
    Seed,
    StopString,
    Temperature,
    TopK,
    TopP,
)

PROTOCOL_MAJOR = 2
PROTOCOL_MINOR = 0

Role = Literal["verifier", "draft", "gateway", "status"]
FinishReason = Literal["stop", "length", "cancelled", "deadline", "failed"]

Token = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
SeqId = Annotated[int, Field(ge=1, lt=2**53)]
RequestId = Annotated[str, Field(min_length=1, max_length=128)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Hash = Annotated[str, Field(max_length=128)]
Label = Annotated[str, Field(max_length=128)]
StreamName = Annotated[str, Field(max_length=128)]
Duration = Annotated[float, Field(ge=0, lt=2**53)]  # in the unit that the field is named after
# For people: longer text is cut where the message is made, and again where it is read.
Text = Annotated[str, AfterValidator(lambda text: one_line(text, 500))]
# FailFast: a list of wrong items is one error, not one for each of them.
Tokens_ = Annotated[list[Token], Field(max_length=1 << 18), FailFast()]
StopTokens = Annotated[list[Token], Field(max_length=16), FailFast()]
StopStrings = Annotated[list[StopString], Field(max_length=MAX_STOPS), FailFast()]
Blocks = Annotated[list[Count], Field(max_length=1 << 16), FailFast()]


class Source(IntEnum):
    """Where a drafted token came from."""

    RETRIEVAL = 0  # the sequence's own text
    CPU = 1
    NPU = 2
    HISTORY = 3  # earlier answers of this plant
    LEXICON = 4  # its manuals and alarm texts


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Sampling(Message):
    """How tokens are chosen, see shared.sampling. The defaults are greedy: always the largest logit.

    `acceptance`: "match" draws the target's token with a generator keyed by (seed, position), whatever was
    drafted; "ratio" accepts more drafts, and the answer depends on them (not its distribution).
    """

    temperature: Temperature = 0.0
    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: MinP = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    seed: Seed = 0
    acceptance: Acceptance = "match"

    @property
    def plain(self) -> bool:
        """The token is the largest logit, as the model gives it."""
        return self.temperature == 0 and self.repetition_penalty == 1


GREEDY = Sampling()


# --- joining the bus -------------------------------------------------------------------------------


class Hello(Message):
    """First message of a service. A mismatch is answered with `Refused` and names the field."""

    protocol_major: Count = PROTOCOL_MAJOR
    protocol_minor: Count = PROTOCOL_MINOR
    role: Role
    incarnation: Annotated[int, Field(ge=0, lt=2**63)]  # monotonic ns at process start: newer fences older
    pid: Count
    config_hash: Hash = ""
    model_hash: Hash = ""  # of the model this role runs (its target or draft), "" when it runs none
    vocabulary_hash: Hash = ""
    plane: Label = ""  # KvGeometry.describe() of the plane this role writes, "" when it writes none


class Welcome(Message):
    context_incarnation: Count
    generation: Count  # of the shared-memory files; changes when they are created anew


class Refused(Message):
    field: Text
    expected: Text
    got: Text
    hint: Text


class Heartbeat(Message):
    """Sent every second in both directions. `busy_s`: how long the sender's loop has been in one step.

    `note`: what keeps the sender from its work, for `ringline status`; "" when nothing does.
    """

    busy_s: Duration = 0.0
    note: Text = ""


class Goodbye(Message):
    reason: Text


# --- gateway and context ---------------------------------------------------------------------------


class RegisterProfile(Message):
    """A profile's prefix, to be computed once and pinned. `window` is W in tokens."""

    profile: Name
    tokens: Tokens_
    window: Count


class Submit(Message):
    """A request. Sending it again with the same id while it lives replays its tokens from the start."""

    request_id: RequestId
    profile: Name
    tokens: Tokens_  # the whole prompt, beginning with the profile's prefix
    max_tokens: Annotated[int, Field(ge=1, le=65536)]
    stop_tokens: StopTokens
    stop: StopStrings = []  # the answer ends with the token that completes one of them
    sampling: Sampling = GREEDY
    severity: Annotated[int, Field(ge=0, le=3)] = 1  # 0 info, 1 warning, 2 alarm, 3 critical
    label: Label = ""  # for people: the alarm's id
    stream: StreamName = ""  # asked behind what this stream holds, on a fork of it; "": on its own
    deadline_s: Annotated[float, Field(ge=0, le=86400)] = 0.0  # from now until it must be over; 0: none


class Cancel(Message):
    request_id: RequestId


class StreamAppend(Message):
    """Text of an asset's stream: `tokens` follow what it holds and are computed without an answer.

    The first append opens the stream on the profile's prefix. `serial` grows with every append to a stream;
    one that is not larger than the last is acknowledged and changes nothing, so it may be sent again.
    """

    stream: Annotated[StreamName, Field(min_length=1)]
    profile: Name
    serial: Count
    tokens: Tokens_


class StreamClose(Message):
    """The stream's memory is needed no more."""

    stream: Annotated[StreamName, Field(min_length=1)]


class StreamAppended(Message):
    """Everything up to `serial` is in the stream, and stays there if context is killed."""

    stream: StreamName
    serial: Count


class StreamRefused(Message):
    stream: StreamName
    serial: Count
    reason: Text
    retry_after_s: Duration | None  # None: never, the append itself is wrong


class Accepted(Message):
    request_id: RequestId
    cached_tokens: Count  # prompt tokens whose K/V was found in the pool


class Rejected(Message):
    request_id: RequestId
    reason: Text
    retry_after_s: Duration | None  # None: never, the request itself is wrong


class Tokens(Message):
    """Answer tokens `[index, index + len(tokens))`, counted from the first answer token."""

    request_id: RequestId
    index: Count
    tokens: Tokens_


class Finished(Message):
    request_id: RequestId
    reason: FinishReason
    detail: Text = ""
    prompt_tokens: Count
    answer_tokens: Count  # without the stop token
    cached_tokens: Count
    passes: Count
    drafted: Count  # draft tokens verified
    accepted: Count  # draft tokens accepted


# --- context, verifier and draft -------------------------------------------------------------------


class SeqOpen(Message):
    """Snapshot of a live sequence: sent when it is admitted, when a service (re)joins, and to resynchronise.

    `tokens` are those at positions `first` and behind: a stream forgets what nobody needs any more.
    `blocks[i]` is the pool block of table index i (slots 16 i .. 16 i + 15). `sink` S, `ring` N, `window` W.
    """

    seq: SeqId
    epoch: Count
    first: Count = 0
    tokens: Tokens_
    prompt_len: Count
    kv_len: Count  # of the target's plane
    draft_kv_len: Count  # of the draft's plane
    blocks: Blocks
    sink: Count
    ring: Count
    window: Count
    max_tokens: Count  # answer tokens at most; 0 when it is only to be computed (a prefix, a stream)
    stop_tokens: StopTokens
    stop: StopStrings = []
    sampling: Sampling = GREEDY
    severity: Count


class SeqState(Message):
    """What one commit changed: `tokens` since epoch - 1, `blocks` replace the table from `first_block`."""

    seq: SeqId
    epoch: Count
    kv_len: Count
    tokens: Tokens_
    first_block: Count
    blocks: Blocks


class SeqAppend(Message):
    """A stream has grown: `tokens` follow the first `known`, `blocks` replace the table from `first_block`.

    It is no commit and leaves the epoch as it is. Who knows another number of tokens gets a snapshot.
    """

    seq: SeqId
    known: Count
    tokens: Tokens_
    first_block: Count
    blocks: Blocks


class SeqClose(Message):
    """The sequence is over. Whoever writes K/V answers with `SeqReleased`, also when it does not know it.

    `reason` is the FinishReason of an answer; `tokens` are its last ones, which no SeqState has told.
    """

    seq: SeqId
    reason: Text
    tokens: Tokens_ = Field(default_factory=list)


class SeqReleased(Message):
    """Verifier and draft, after SeqClose: no write to this sequence's blocks is under way or will come.

    Context hands the blocks to nobody else before: a pass that was running when an alarm was cancelled would
    otherwise commit into another sequence's memory.
    """

    seq: SeqId


class Commit(Message):
    """K/V of positions `[kv_len, kv_len + written)` is in the pool and `tokens` follow the known ones.

    `epoch` is the state this commit starts from. `finish` is set when the answer ends here; tokens after a
    stop are never sent. A stop token itself is not part of `tokens`; the one that completes a stop string is,
    because it may begin with text.
    """

    seq: SeqId
    epoch: Count
    kv_len: Count
    written: Count
    tokens: Tokens_
    finish: Literal["stop", "length"] | None = None
    drafted: Count = 0
    accepted: Count = 0
    accepted_by_source: Annotated[dict[int, Count], Field(max_length=16)] = Field(default_factory=dict)
    forward_ms: Duration = 0.0


class CommitFailed(Message):
    """The verifier cannot go on with this sequence (a broken table, a model error)."""

    seq: SeqId
    epoch: Count
    reason: Text


class PlaneFilled(Message):
    """Draft has written its plane up to `kv_len`."""

    seq: SeqId
    kv_len: Count


class Draw(Message):
    """Nodes of a proposal that were sampled, without replacement and in this order: the `children` of
    `parent` from `ids` with `probs`, the distribution that was really drawn from."""

    parent: Annotated[int, Field(ge=-1, lt=256)]
    children: Annotated[list[Annotated[int, Field(ge=0, lt=256)]], Field(max_length=16), FailFast()]
    ids: Annotated[list[Token], Field(max_length=64), FailFast()]
    probs: Annotated[list[float], Field(max_length=64), FailFast()]


class Proposal(Message):
    """A token tree that hangs on `tokens[base - 1]` of the sequence (the root, not part of the tree).

    Parents come before children; parent -1 is the root. `logq` is the natural log of the draft's probability;
    of a node in `draws` it is that of the probability that such a draw is accepted, whichever token it was.
    """

    seq: SeqId
    base: Count  # number of known tokens the tree follows
    tokens: Annotated[list[Token], Field(max_length=256), FailFast()]
    parents: Annotated[list[Annotated[int, Field(ge=-1, lt=256)]], Field(max_length=256), FailFast()]
    sources: Annotated[list[Annotated[int, Field(ge=0, le=15)]], Field(max_length=256), FailFast()]
    logq: Annotated[list[float], Field(max_length=256), FailFast()]
    draws: Annotated[list[Draw], Field(max_length=48), FailFast()] = []


# --- status ----------------------------------------------------------------------------------------


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
