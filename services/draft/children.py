"""What the draft model says follows a token: its likeliest tokens, or draws from its distribution. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.draft.prior import Prior, reorder
from shared.bus.messages.requests import Sampling
from shared.native import likeliest_tokens
from shared.sampling import warp
from shared.tree import Drawn

WIDTH = 3  # children of a leaf
LEAST_CHILD = math.log(0.03)  # a second child less likely than this is not proposed
CANDIDATES = 8  # of the model's tokens that the prior chooses among
_NEAR = 8.0  # how far a candidate's logit may be below the largest one
_SUPPORT = 32  # tokens that are drawn from: they travel with every proposal

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Children:
    """`logq` are natural logs of probabilities that a token is right; `drawn`: they were sampled."""

    tokens: list[int]
    logq: list[float]
    drawn: Drawn | None = None


def likeliest(logits: Logits, prior: Prior | None = None) -> Children:
    """The WIDTH likeliest tokens of a row of logits.

    The first is the largest logit (the lowest id among equals); the others only above LEAST_CHILD. With a
    prior they are chosen among the model's CANDIDATES likeliest.
    """
    tokens, logq = likeliest_tokens(logits, CANDIDATES if prior else WIDTH)
    if prior is not None:
        near = sum(logits[token] >= logits[tokens[0]] - np.float32(_NEAR) for token in tokens)
        tokens, logq = tokens[:near], logq[:near]
        tokens, logq = reorder(tokens, logq, prior(tokens))
    n = sum(value >= LEAST_CHILD for value in logq[1:WIDTH])
    return Children(tokens[: 1 + n], logq[: 1 + n])


def drawn(
    logits: Logits, history: NDArray[np.int64], sampling: Sampling, uniform: Callable[[], float]
) -> Children:
    """Up to WIDTH different tokens, sampled without replacement as the target samples, for `ratio`.

    Their `logq` must not depend on which tokens came (shared.tree.draws). A draw from q is accepted with
    sum(min(p, q)); p is not known here: halfway between the probability that a draw repeats and 1.
    """
    most = min(sampling.top_k or _SUPPORT, _SUPPORT)
    q = warp(logits, history, sampling.model_copy(update={"top_k": most}))
    weights = q.weights / q.total
    accepted = (1.0 + float((weights**2).sum())) / 2
    assert q.ids is not None
    found = Drawn(q.ids.tolist(), weights.tolist(), [])
    children = Children(found.tokens, [], found)
    rest = q
    while len(found.tokens) < WIDTH and rest.total > 0:
        found.tokens.append(rest.draw(uniform()))
        children.logq.append(math.log(accepted) + (len(found.tokens) - 1) * math.log1p(-min(accepted, 0.99)))
        rest = rest.without(found.tokens)
    return children
