"""From measured answers and passes to figures. Pure.

*Decoding* is the time from an answer's first token to its end, with the tokens behind the first piece: what
speculation can make faster. *Whole* answers include the prompt.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.plant import Timed
from shared.bus.messages.sequences import Source

DEPTHS = 12  # deeper nodes are counted with these


@dataclass(frozen=True)
class Pass:
    """One sequence's part of a pass of the target. `nodes`: source, depth from 1 on, accepted."""

    at: float  # when it ended, monotonic seconds
    ms: float
    forward_ms: float  # of that, the model's forward pass
    answered: int  # tokens that became known
    nodes: list[tuple[int, int, bool]]


def read_passes(
    lines: Iterable[str], spans: Sequence[tuple[float, float]]
) -> tuple[list[Pass], dict[str, float]]:
    """Of what `watched_verifier` wrote: the passes that answered something and ended within one of the spans,
    in order, and what the verifier counted itself."""
    found, counted = [], {}
    for line in lines:
        row = json.loads(line)
        if "counted" in row:
            counted = row["counted"]
            continue
        nodes = [(source, depth, bool(accepted)) for source, depth, accepted in row["nodes"]]
        one = Pass(row["at"], row["ms"], row["forward"], row["answered"], nodes)
        if row["written"] <= 1 + len(nodes) and any(low <= one.at <= high for low, high in spans):
            found.append(one)
    return found, counted


def decode_seconds(answer: Timed) -> float:
    return answer.ended - answer.pieces[0][0]


def decode_tokens(answer: Timed) -> int:
    return len(answer.tokens) - answer.pieces[0][1]


def rate(answers: Sequence[Timed]) -> float:
    """Tokens a second of decoding, over all answers that have more than a first piece."""
    usable = [a for a in answers if decode_tokens(a) > 0]
    seconds = sum(decode_seconds(a) for a in usable)
    return sum(decode_tokens(a) for a in usable) / seconds if seconds else 0.0


def whole_rate(answers: Sequence[Timed]) -> float:
    """Tokens a second from the first submission to the last end of answers that ran without a pause."""
    return sum(len(a.tokens) for a in answers) / busy_seconds(answers)


def busy_seconds(answers: Sequence[Timed]) -> float:
    """Length of the union of the answers' times."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted((a.submitted, a.ended) for a in answers):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def latencies(answers: Sequence[Timed]) -> dict[str, float]:
    """Milliseconds. `inter_token`: of each token behind the first, the time since the token before it, which
    is 0 within a piece; `pause`: between pieces, what a reader waits for."""
    first = [1000 * (a.pieces[0][0] - a.submitted) for a in answers if a.pieces]
    pauses: list[float] = []
    gaps: list[float] = []
    for answer in answers:
        for (before, _), (at, n) in zip(answer.pieces, answer.pieces[1:], strict=False):
            pauses.append(1000 * (at - before))
            gaps += [1000 * (at - before)] + [0.0] * (n - 1)
    return {
        "first_token_ms_p50": percentile(first, 50),
        "first_token_ms_p99": percentile(first, 99),
        "inter_token_ms_p50": percentile(gaps, 50),
        "inter_token_ms_p99": percentile(gaps, 99),
        "inter_token_ms_mean": statistics.fmean(gaps) if gaps else 0.0,
        "pause_ms_p50": percentile(pauses, 50),
        "pause_ms_p99": percentile(pauses, 99),
    }


def percentile(values: Sequence[float], q: float) -> float:
    return float(np.percentile(values, q)) if values else 0.0


def speculation(passes: Sequence[Pass], model: str = "cpu") -> dict[str, Any]:
    """Tokens a pass, share of passes without drafts, and what became of the drafts by source and depth.

    `model`: what the nodes of the draft model are called.
    """
    answered = sum(one.answered for one in passes)
    accepted = [sum(hit for *_, hit in one.nodes) for one in passes]
    plain = sum(not one.nodes for one in passes)
    return {
        "passes": len(passes),
        "tokens_per_pass": answered / len(passes) if passes else 0.0,
        "share_plain": plain / len(passes) if passes else 0.0,
        "nodes_per_pass": sum(len(one.nodes) for one in passes) / len(passes) if passes else 0.0,
        "accepted_per_pass": sum(accepted) / len(passes) if passes else 0.0,
        "by_source": _by_source(passes, model),
        "by_depth": _by_depth(passes),
        "pass_ms_by_nodes": _cost(passes),
    }


def _by_source(passes: Sequence[Pass], model: str) -> dict[str, Any]:
    found = {}
    for source in sorted({s for one in passes for s, *_ in one.nodes}):
        nodes = [(d, hit) for one in passes for s, d, hit in one.nodes if s == source]
        name = model if source == Source.CPU else Source(source).name.lower()
        found[name] = _counted(hit for _, hit in nodes) | {"by_depth": _depths(nodes)}
    return found


def _by_depth(passes: Sequence[Pass]) -> dict[str, Any]:
    return _depths([(d, hit) for one in passes for _, d, hit in one.nodes])


def _depths(nodes: Sequence[tuple[int, bool]]) -> dict[str, Any]:
    at = {depth: [hit for d, hit in nodes if min(d, DEPTHS) == depth] for depth in range(1, DEPTHS + 1)}
    return {str(depth): _counted(hits) for depth, hits in at.items() if hits}


def _counted(hits: Iterable[bool]) -> dict[str, Any]:
    found = list(hits)
    return {"drafted": len(found), "accepted": sum(found), "rate": sum(found) / len(found)}


def _cost(passes: Sequence[Pass]) -> dict[str, float]:
    """Median milliseconds of a pass by its draft nodes."""
    sizes = sorted({len(one.nodes) for one in passes})
    return {str(n): statistics.median(p.ms for p in passes if len(p.nodes) == n) for n in sizes}


def overhead(answers: Sequence[Timed], passes: Sequence[Pass], cpu_s: Mapping[str, float]) -> dict[str, Any]:
    """What a pass takes beside the model's forward pass, in a plant that answers one question at a time: from
    an answer's first token to its end, Python and messages of all services. And their processor time."""
    spans = [(a.pieces[0][0], a.ended) for a in answers]
    inside = [p for p in passes if any(low < p.at <= high for low, high in spans)]
    beside = 1000 * sum(high - low for low, high in spans) - sum(p.forward_ms for p in inside)
    return {
        "ms_beside_forward_per_pass": beside / len(inside) if inside else 0.0,
        "cpu_ms_per_pass": {name: 1000 * s / max(1, len(passes)) for name, s in cpu_s.items()},
    }


def paired(plain: Sequence[Timed], other: Sequence[Timed]) -> dict[str, Any]:
    """Plain seconds by the other's for the same questions: in total, by answer, and in quarters of them."""
    both = [
        (p, o) for p, o in zip(plain, other, strict=True) if decode_tokens(p) > 0 and decode_tokens(o) > 0
    ]
    ratios = [
        (decode_seconds(p) / decode_tokens(p)) / (decode_seconds(o) / decode_tokens(o)) for p, o in both
    ]
    return {
        "ratio_to_plain": rate([o for _, o in both]) / rate([p for p, _ in both]),
        "ratio_p25": percentile(ratios, 25),
        "ratio_p50": percentile(ratios, 50),
        "ratio_p75": percentile(ratios, 75),
        "ratio_whole": whole_rate(other) / whole_rate(plain),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def said_before(past: Iterable[Sequence[int]], answers: Sequence[Timed]) -> list[bool]:
    """Of each answer whether one before it, or in the past, was the same word for word."""
    seen = {tuple(tokens) for tokens in past}
    found = []
    for answer in answers:
        found.append(tuple(answer.tokens) in seen)
        seen.add(tuple(answer.tokens))
    return found


def by_novelty(
    plain: Sequence[Timed], other: Sequence[Timed], before: Sequence[bool]
) -> dict[str, dict[str, float]]:
    """`paired` for the answers that had been given before and for the others."""
    found = {}
    for name, wanted in (("given_before", True), ("new", False)):
        chosen = [i for i, known in enumerate(before) if known is wanted]
        if chosen:
            ratio = paired([plain[i] for i in chosen], [other[i] for i in chosen])["ratio_to_plain"]
            found[name] = {"answers": len(chosen), "ratio_to_plain": ratio}
    return found
