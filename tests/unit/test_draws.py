"""What a trie knows of drafts that were sampled: one drawing a node, and what they tell of each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from services.draft.children import WIDTH, drawn
from services.verifier.judge import Tries
from shared.bus.messages.requests import Sampling
from shared.sampling import Distribution, warp
from shared.tree import Drawn, TokenTrie

IDS, PROBS = [4, 5, 6, 7], [0.4, 0.3, 0.2, 0.1]


@dataclass
class Draws:
    parent: int
    children: list[int]
    ids: list[int]
    probs: list[float]


def tree(*tokens: int, first: int = 0) -> tuple[list[int], list[int], list[int], list[float]]:
    """Children of the root."""
    n = len(tokens)
    return list(tokens), [-1] * n, [first] * n, [-0.5 - i for i in range(n)]


def at_root(*children: int, ids: list[int] = IDS, probs: list[float] = PROBS) -> list[Draws]:
    return [Draws(-1, list(children), ids, probs)]


def qs(trie: TokenTrie) -> dict[int, list[float] | None]:
    """Token of the root's children in the order of trial, and the q of IDS."""
    tries = Tries(trie.best(9), trie.root).of(0)
    return {token: None if q is None else [round(q.probability(i), 6) for i in IDS] for token, q in tries}


def test_a_second_draw_was_drawn_without_the_first() -> None:
    trie = TokenTrie(1)
    trie.insert(1, *tree(5, 4), at_root(0, 1))
    assert qs(trie) == {5: PROBS, 4: [round(p / 0.7, 6) if i != 1 else 0.0 for i, p in enumerate(PROBS)]}


@pytest.mark.parametrize("before", [True, False])
def test_a_draw_that_somebody_proposes_too_counts_as_proposed(before: bool) -> None:
    """What the others tell of it: they are known not to be the proposed token."""
    trie = TokenTrie(1)
    if before:
        trie.insert(1, *tree(5, first=1))
    trie.insert(1, *tree(5, 4), at_root(0, 1))
    if not before:
        trie.insert(1, *tree(5, first=1))
    assert qs(trie) == {4: [round(p / 0.7, 6) if i != 1 else 0.0 for i, p in enumerate(PROBS)], 5: None}
    assert trie.draws(trie.best(9)) == [], "beside proposals, draws are handed on as proposals"


def test_the_same_draws_may_come_again_and_grow() -> None:
    trie = TokenTrie(1)
    trie.insert(1, *tree(5), at_root(0))
    trie.insert(1, *tree(5, 4), at_root(0, 1))
    trie.insert(1, *tree(5), at_root(0))
    assert list(qs(trie)) == [5, 4]
    assert all(q is not None for q in qs(trie).values())
    ((parent, children, found),) = trie.draws(trie.best(9))
    assert (parent, children, found) == (-1, [0, 1], Drawn(IDS, PROBS, [5, 4]))


def test_other_draws_at_the_same_node_are_dropped_with_what_follows_them() -> None:
    """A drafter that was killed and drew anew: nothing is known of both together."""
    trie = TokenTrie(1)
    trie.insert(1, *tree(5), at_root(0))
    tokens, parents, sources, logq = tree(6)
    again = [*tokens, 9], [*parents, 0], [*sources, 0], [*logq, -0.1]
    assert trie.insert(1, *again, at_root(0)) == 0
    assert trie.insert(1, *tree(6), at_root(0, probs=[0.25] * 4)) == 0
    assert list(qs(trie)) == [5]


def test_draws_follow_the_root_and_end_with_their_node() -> None:
    trie = TokenTrie(1)
    trie.insert(1, [8, 5, 4], [-1, 0, 0], [0] * 3, [-0.1, -0.2, -0.3], [Draws(0, [1, 2], IDS, PROBS)])
    trie.advance([8])
    assert [q is not None for q in qs(trie).values()] == [True, True]
    trie.advance([4])
    assert trie.root.draws() == []


def test_when_a_full_trie_forgets_a_proposal_the_draws_beside_it_count_as_proposed() -> None:
    """Whether they were that token can no longer be seen."""
    trie = TokenTrie(1, capacity=4)
    trie.insert(1, *tree(5, 4), at_root(0, 1))
    trie.insert(1, [70], [-1], [1], [-9.0])
    trie.insert(1, [70, 71, 72, 73], [-1, -1, -1, -1], [1] * 4, [-9.0] * 4)
    assert 5 in qs(trie)
    assert qs(trie)[5] is None
    assert trie.insert(1, *tree(6, 4), at_root(0, 1)) == 0


@pytest.mark.parametrize(
    "bad",
    [
        at_root(2),
        [Draws(0, [1], IDS, PROBS)],
        at_root(0, 0),
        [*at_root(0), *at_root(0)],
        at_root(0, probs=[0.5, 0.5]),
        at_root(0, ids=[4, 4, 6, 7]),
        at_root(0, ids=[6, 7], probs=[0.5, 0.5]),
        at_root(0, probs=[0.4, 0.3, 0.3, 0.0]),
        at_root(0, probs=[float("nan")] * 4),
        at_root(0, probs=[1e308] * 4),
    ],
)
def test_draws_that_cannot_be_are_refused(bad: list[Draws]) -> None:
    trie = TokenTrie(1)
    with pytest.raises(ValueError, match=r"draw|probabilit|weights"):
        trie.insert(1, *tree(5, 4), bad)
    assert trie.size == 0


def test_what_the_model_draws_is_sampled_as_the_target_samples() -> None:
    """Two different tokens, from the warped distribution that is named; the scores do not tell which ones."""
    logits = (np.random.default_rng(3).standard_normal(1000) * 3).astype(np.float32)
    sampling = Sampling(temperature=0.8, top_k=12, acceptance="ratio")
    random = np.random.default_rng(1).random
    found = [drawn(logits, np.zeros(0, np.int64), sampling, random) for _ in range(40)]
    p: Distribution = warp(logits, np.zeros(0, np.int64), sampling)
    for children in found:
        assert children.drawn is not None
        assert p.ids is not None
        assert children.drawn.ids == p.ids.tolist()
        assert children.drawn.probs == pytest.approx((p.weights / p.total).tolist())
        assert len(set(children.tokens)) == WIDTH
        assert children.tokens == children.drawn.tokens
        assert children.logq == found[0].logq
    assert len({tuple(children.tokens) for children in found}) > 10
