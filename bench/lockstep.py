"""What the same drafts would bring if draft and verifier waited for each other: computed, not measured.

    draft k tokens, one after the other → verify them in one pass → draft the next k …

k is fixed, and the best of all k in hindsight is taken. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.draft_trace import Likely
from bench.traces import Traced

MOST = 12  # draft tokens of a cycle
After = Callable[[Traced, int, tuple[int, ...]], Likely | None]


@dataclass(frozen=True)
class Lockstep:
    """`ratio`: how many times as fast as plain decoding."""

    drafted: int
    ratio: float
    tokens_per_pass: float


def best_lockstep(
    items: Sequence[Traced], after: After, pace_ms: float, pass_ms: Sequence[float]
) -> Lockstep:
    """`pass_ms[n]`: a pass with n draft tokens; as many as are to be tried, and one more."""
    chains = [(item, [chain(item, i, after) for i in range(len(item.answer))]) for item in items]
    return max(
        (_lockstep(chains, k, pace_ms, pass_ms) for k in range(1, len(pass_ms))), key=lambda x: x.ratio
    )


def _lockstep(
    chains: Sequence[tuple[Traced, list[int]]], k: int, pace_ms: float, pass_ms: Sequence[float]
) -> Lockstep:
    cycles = tokens = 0
    for item, right in chains:
        i = 1  # the first token comes with the prompt
        while i < len(item.answer):
            i += min(right[i], k) + 1
            cycles += 1
        tokens += len(item.answer) - 1
    ms = cycles * (k * pace_ms + pass_ms[k])
    return Lockstep(k, tokens * pass_ms[0] / ms, tokens / cycles)


def chain(item: Traced, i: int, after: After) -> int:
    """How many tokens behind i answer tokens the draft model's likeliest tokens get right, at most MOST."""
    right = 0
    while right < MOST and i + right < len(item.answer):
        likely = after(item, i + right, ())
        if not likely or likely[0][0] != item.answer[i + right]:
            break
        right += 1
    return right


def pass_costs(token_ms: float, by_nodes: Mapping[str, float]) -> list[float]:
    """Milliseconds of a pass with 0 … MOST draft nodes, from measured medians; straight between those.

    `token_ms`: a token of plain decoding, with all that it takes beside its pass. Nodes beyond the measured
    ones are left out.
    """
    known = sorted((int(n), ms) for n, ms in by_nodes.items())
    beside = token_ms - known[0][1]
    costs = []
    for n in range(min(MOST, known[-1][0]) + 1):
        low = max(point for point in known if point[0] <= n)
        high = min(point for point in known if point[0] >= n)
        share = (n - low[0]) / (high[0] - low[0]) if high[0] > low[0] else 0.0
        costs.append(beside + low[1] + share * (high[1] - low[1]))
    return costs
