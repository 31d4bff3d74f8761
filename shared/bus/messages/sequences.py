"""Between context, verifier and draft: sequences, what is drafted for them, what is committed."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Literal

from pydantic import FailFast, Field

from shared.bus.messages.fields import (
    Blocks,
    Count,
    Duration,
    Message,
    SeqId,
    StopStrings,
    StopTokens,
    Text,
    Token,
    Tokens_,
)
from shared.bus.messages.requests import GREEDY, Sampling


class Source(IntEnum):
    """Where a drafted token came from."""

    RETRIEVAL = 0  # the sequence's own text
    CPU = 1
    NPU = 2
    HISTORY = 3  # earlier answers of this plant
    LEXICON = 4  # its manuals and alarm texts


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
    stop: StopStrings = Field(default_factory=list)
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
    `next` is what a draft model computes now: it will know at about `due` (CLOCK_MONOTONIC, seconds) what
    follows this path behind the root. None: nothing for this sequence, or, with `due` 0, no model says so.
    """

    seq: SeqId
    base: Count  # number of known tokens the tree follows
    tokens: Annotated[list[Token], Field(max_length=256), FailFast()]
    parents: Annotated[list[Annotated[int, Field(ge=-1, lt=256)]], Field(max_length=256), FailFast()]
    sources: Annotated[list[Annotated[int, Field(ge=0, le=15)]], Field(max_length=256), FailFast()]
    logq: Annotated[list[float], Field(max_length=256), FailFast()]
    draws: Annotated[list[Draw], Field(max_length=48), FailFast()] = Field(default_factory=list)
    next: Annotated[list[Token] | None, Field(max_length=64)] = None
    due: Duration = 0.0
