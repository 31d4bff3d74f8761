"""What a commit must look like to be believed. Pure."""

from __future__ import annotations

from services.context.limits import Limits
from services.context.sequence import Sequence
from shared.bus.messages.sequences import Commit


def commit_error(sequence: Sequence, commit: Commit, limits: Limits) -> str | None:
    """Why this commit cannot be applied to the sequence as it is; None when it can."""
    if commit.epoch != sequence.epoch:
        return f"epoch {commit.epoch}, the sequence is at {sequence.epoch}"
    if commit.kv_len != sequence.kv_len:
        return f"starts at position {commit.kv_len}, the sequence is at {sequence.kv_len}"
    return _extent_error(sequence, commit, limits) or _token_error(sequence, commit, limits)


def _extent_error(sequence: Sequence, commit: Commit, limits: Limits) -> str | None:
    if commit.written > max(limits.chunk, limits.step):
        return f"{commit.written} positions written, {max(limits.chunk, limits.step)} at most are possible"
    reached = commit.kv_len + commit.written
    known = sequence.known + len(commit.tokens)
    if reached > known:
        return f"{reached} positions written, {known} tokens known"
    if not sequence.covers(reached):
        return f"position {reached - 1} has no block in the table"
    return _root_error(sequence, commit, reached, known)


def _root_error(sequence: Sequence, commit: Commit, reached: int, known: int) -> str | None:
    """While an answer goes on, exactly one known token is not computed: the root of the next pass."""
    if sequence.max_tokens == 0:
        return _prefix_error(commit, reached, known)
    if commit.finish is not None:
        return None
    if commit.tokens and reached != known - 1:
        return f"{known} tokens known with {reached} positions written: one should be left"
    if not commit.tokens and reached >= known:
        return "every known token is computed and none follows"
    return None


def _prefix_error(commit: Commit, reached: int, known: int) -> str | None:
    if commit.tokens:
        return "a prefix or a stream has no answer"
    return "a prefix ended before it was computed" if commit.finish and reached < known else None


def _token_error(sequence: Sequence, commit: Commit, limits: Limits) -> str | None:
    if any(token >= limits.n_vocab for token in commit.tokens):
        return f"token {max(commit.tokens)} is not in the vocabulary of {limits.n_vocab}"
    if sequence.answer_len + len(commit.tokens) > sequence.max_tokens:
        return f"{sequence.answer_len + len(commit.tokens)} answer tokens, {sequence.max_tokens} are allowed"
    return None
