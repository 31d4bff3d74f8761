"""What context tells others of a sequence."""

from __future__ import annotations

from typing import get_args

from services.context.sequence import Sequence
from shared.bus.messages import Accepted, Finished, FinishReason, SeqState, Submit


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


def finished_unstarted(submit: Submit) -> Finished:
    return Finished(
        request_id=submit.request_id,
        reason="cancelled",
        prompt_tokens=len(submit.tokens),
        answer_tokens=0,
        cached_tokens=0,
        passes=0,
        drafted=0,
        accepted=0,
    )
