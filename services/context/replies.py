"""What context tells others of a sequence."""

from __future__ import annotations

from typing import get_args

from services.context.sequence import Sequence
from services.context.waiting import Waiting
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Accepted, Finished, FinishReason, Tokens
from shared.bus.messages.sequences import SeqState


def state(sequence: Sequence, tokens: list[int], first_block: int) -> SeqState:
    return SeqState(
        seq=sequence.seq,
        epoch=sequence.epoch,
        kv_len=sequence.kv_len,
        tokens=tokens,
        first_block=first_block,
        blocks=sequence.blocks[first_block:],
    )


def accepted(sequence: Sequence) -> Accepted:
    return Accepted(request_id=sequence.request_id, cached_tokens=sequence.cached_tokens)


def finished(sequence: Sequence, detail: str) -> Finished:
    reason = next(name for name in get_args(FinishReason) if name == sequence.finish)
    return Finished(
        request_id=sequence.request_id,
        reason=reason,
        detail=detail,
        prompt_tokens=sequence.prompt_len,
        answer_tokens=sequence.answer_len,
        cached_tokens=sequence.cached_tokens,
        passes=sequence.passes,
        drafted=sequence.drafted,
        accepted=sequence.accepted,
    )


def finished_waiting(waiting: Waiting, reason: FinishReason) -> Finished:
    """The end of a request that was not live: it had not begun, or was paused."""
    if waiting.paused is not None:
        waiting.paused.finish = reason
        return finished(waiting.paused, "")
    return Finished(
        request_id=waiting.submit.request_id,
        reason=reason,
        prompt_tokens=len(waiting.submit.tokens),
        answer_tokens=0,
        cached_tokens=0,
        passes=0,
        drafted=0,
        accepted=0,
    )


def replay(sequence: Sequence) -> list[Message]:
    """What has been said of a request so far."""
    messages: list[Message] = [accepted(sequence)]
    if sequence.answer_len:
        messages.append(Tokens(request_id=sequence.request_id, index=0, tokens=sequence.answer))
    if sequence.finish in get_args(FinishReason):
        messages.append(finished(sequence, ""))
    return messages
