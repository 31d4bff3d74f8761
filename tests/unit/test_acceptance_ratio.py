"""`ratio` and `match` give the target's distribution, whatever was drafted (chi-square, fixed seeds).

A small world: five tokens, a target p and a draft q that depend on the context. A drafter grows a tree of
draws (two at a node, without replacement) and of proposals that are no draws, some of them the same tokens;
the verifier keeps the best of it, judges, and goes on with what survives. Counted are the first tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from services.verifier.acceptance import accept_ratio, walk
from services.verifier.judge import Tries
from services.verifier.stops import StopStrings, no_bytes
from shared.sampling import Distribution, uniform
from shared.tree import Drawn, Node, Selection, TokenTrie, Try
from tests.unit.chi_square import p_value, survival

N = 5  # tokens
LENGTH = 2  # of what is counted
SAMPLES = 20_000
ENOUGH = 2_500  # for a wrong rule to be found out
Context = tuple[int, ...]
Accept = Callable[[Distribution, Iterable[Try], Callable[[], float]], int]
Claim = Callable[[Distribution, int], float]


def table(seed: int, sharpness: float) -> dict[Context, Distribution]:
    """A distribution behind every context of up to LENGTH tokens, some tokens of it nearly impossible."""
    generator = np.random.default_rng(seed)
    contexts: list[Context] = [()]
    for context in contexts:
        if len(context) < LENGTH:
            contexts += [(*context, token) for token in range(N)]
    rows = generator.standard_normal((len(contexts), N)) * sharpness
    ids = np.arange(N)
    return {
        context: Distribution(np.exp(row - row.max()), ids)
        for context, row in zip(contexts, rows, strict=True)
    }


P, Q = table(1, 1.0), table(2, 1.2)
PROBS = {context: (q.weights / q.total).tolist() for context, q in Q.items()}


def accepted_anyhow(_q: Distribution, _token: int) -> float:
    """What a drafter may claim: it is the same for every token."""
    return math.log(0.6)


def own_probability(q: Distribution, token: int) -> float:
    """What a drafter must not claim of what it drew."""
    return math.log(q.probability(token))


class World:
    """`accept` and `claim` are the rules under test; `tries_of` says what is tried at a node."""

    def __init__(
        self,
        seed: int,
        accept: Accept = accept_ratio,
        claim: Claim = accepted_anyhow,
        budget: int = 5,
        tries: Callable[[Selection, Node], Tries] = Tries,
    ) -> None:
        self._random = random.Random(seed)
        self._accept = accept
        self._claim = claim
        self._budget = budget
        self._tries = tries

    def answer(self) -> Context:
        """The first LENGTH tokens, in as many passes as it takes."""
        trie, said = TokenTrie(1), list[int]()
        self._draft(trie)
        while len(said) < LENGTH:
            tokens = self._judge(trie, tuple(said))
            trie.advance(tokens)
            said += tokens
        return tuple(said[:LENGTH])

    def _draft(self, trie: TokenTrie) -> None:
        """Draws at the root and behind the best node, and a chain that somebody else proposes."""
        self._draw(trie, trie.root, ())
        best = trie.best(1).nodes[0]
        self._draw(trie, best, (best.token,))
        proposed = self._random.choice(((0, 3), (2, 1), (4, 0)))
        trie.insert_path(1, proposed, 1, (-0.9, -0.3))

    def _draw(self, trie: TokenTrie, node: Node, context: Context) -> None:
        q = Q[context]
        drawn, rest = Drawn(list(range(N)), PROBS[context], []), q
        for _ in range(2):
            drawn.tokens.append(rest.draw(self._random.random()))
            rest = rest.without(drawn.tokens)
        logq = [self._claim(q, token) + rank * -0.6 for rank, token in enumerate(drawn.tokens)]
        trie.add_children(node, drawn.tokens, 0, logq, drawn)

    def _judge(self, trie: TokenTrie, said: Context) -> list[int]:
        best = trie.best(self._budget)
        tries = self._tries(best, trie.root)
        names = [-1, *best.tokens]
        parents = [-1, *(parent + 1 for parent in best.parents)]

        def rule(node: int, emitted: list[int]) -> int:
            p = P[(*said, *emitted)[:LENGTH]]
            return self._accept(p, tries.of(node), self._random.random)

        ends = StopStrings((), ()).ends(frozenset(), no_bytes)
        return walk(names, parents, rule, ends, LENGTH + 1).tokens


def fits(world: World, samples: int) -> float:
    """p-value of `samples` answers under the target's own distribution."""
    counts = np.zeros((N, N), np.int64)
    for _ in range(samples):
        counts[world.answer()] += 1
    wanted = np.array(
        [[P[()].probability(a) * P[(a,)].probability(b) for b in range(N)] for a in range(N)], np.float64
    )
    return p_value(counts.ravel(), wanted.ravel())


def test_ratio_is_plain_sampling() -> None:
    assert fits(World(seed=6), SAMPLES) > 0.01


def equal_to_a_sample(p: Distribution, tries: Iterable[Try], uniform: Callable[[], float]) -> int:
    """Wrong: a draw is accepted when the target happens to draw the same, and another chance is given."""
    for token, _ in tries:
        if p.draw(uniform()) == token:
            return token
    return p.draw(uniform())


def residual_without_max(p: Distribution, tries: Iterable[Try], uniform: Callable[[], float]) -> int:
    """Wrong: |p - q| in place of max(0, p - q)."""
    for token, q in tries:
        share = 1.0 if q is None else q.probability(token)
        if uniform() * share < p.probability(token):
            return token
        taken = Distribution.point(token) if q is None else q
        other = np.array([taken.probability(i) for i in range(N)])
        own = np.array([p.probability(i) for i in range(N)])
        p = Distribution(np.abs(own - other), np.arange(N))
    return p.draw(uniform())


def another_q(p: Distribution, tries: Iterable[Try], uniform: Callable[[], float]) -> int:
    """Wrong: the distribution that the draft would have had at another temperature."""
    changed = ((t, q and Distribution(q.weights**0.5, q.ids)) for t, q in tries)
    return accept_ratio(p, changed, uniform)


@pytest.mark.parametrize("wrong", [equal_to_a_sample, residual_without_max, another_q])
def test_a_wrong_rule_fails_the_same_test(wrong: Accept) -> None:
    assert fits(World(seed=3, accept=wrong), ENOUGH) < 1e-4


def test_scores_that_tell_what_was_drawn_fail_the_same_test() -> None:
    """The likelier draws are kept more often, so what is kept was not drawn from q any more."""
    assert fits(World(seed=4, claim=own_probability, budget=2), 2 * ENOUGH) < 1e-4


class Unconditional(Tries):
    """Wrong: every draw is tried with the whole q, as if nothing were known of the others."""

    def of(self, index: int) -> list[Try]:
        drawn = self._nodes[index].drawn
        q = Distribution(np.array(drawn.probs), np.arange(N)) if drawn else None
        return [(token, None if other is None else q) for token, other in super().of(index)]


def test_draws_without_replacement_tried_with_the_whole_q_fail_the_same_test() -> None:
    assert fits(World(seed=5, tries=Unconditional, budget=6), ENOUGH) < 1e-4


def test_match_is_plain_sampling() -> None:
    """Over requests with different seeds, at one position; and over the positions of one request."""
    p = P[()]
    for drawn in (
        [p.draw(uniform(seed, 77)) for seed in range(SAMPLES)],
        [p.draw(uniform(5, position)) for position in range(SAMPLES)],
    ):
        assert p_value(np.bincount(drawn, minlength=N), p.weights) > 0.01


def test_seed_and_position_draw_independently() -> None:
    """Neighbours in either are no more alike than strangers."""
    cells = 8
    for pairs in (
        [(uniform(seed, 3), uniform(seed, 4)) for seed in range(SAMPLES)],
        [(uniform(seed, 3), uniform(seed + 1, 3)) for seed in range(0, 2 * SAMPLES, 2)],
        [(uniform(1, position, 0), uniform(1, position, 1)) for position in range(SAMPLES)],
    ):
        counts = np.zeros((cells, cells), np.int64)
        for a, b in pairs:
            counts[int(a * cells), int(b * cells)] += 1
        assert p_value(counts.ravel(), np.ones(cells * cells)) > 0.01


def test_the_chi_square_distribution_is_the_tabulated_one() -> None:
    for degrees, x, p in ((1, 3.841, 0.05), (10, 23.209, 0.01), (24, 13.848, 0.95), (63, 63.0, 0.4765)):
        assert survival(x, degrees) == pytest.approx(p, rel=2e-3)


def test_a_draw_of_a_distribution_that_p_equals_is_always_accepted() -> None:
    """Also where rounding leaves nothing of p."""
    q = Distribution(np.array([0.1, 0.2, 0.7]) / 3, np.array([4, 5, 6]))
    p = Distribution(np.array([0.1, 0.2, 0.7]), np.array([4, 5, 6]))
    for u in (0.0, 0.5, 1 - 2**-53):
        assert accept_ratio(p, [(5, q)], lambda u=u: u) == 5  # type: ignore[misc]
