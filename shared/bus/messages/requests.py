"""Between gateway and context: profiles, requests and their answers, what is added to streams."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.bus.messages.fields import (
    Count,
    Duration,
    Label,
    Message,
    Name,
    RequestId,
    StopStrings,
    StopTokens,
    StreamName,
    Text,
    Tokens_,
)
from shared.config.values import Acceptance, MinP, RepetitionPenalty, Seed, Temperature, TopK, TopP

FinishReason = Literal["stop", "length", "cancelled", "deadline", "failed"]


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
    stop: StopStrings = Field(
        default_factory=list
    )  # the answer ends with the token that completes one of them
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
