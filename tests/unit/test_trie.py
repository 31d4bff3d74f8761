"""The token trie against a naive model: a dictionary from path to (logq, source)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.tree import LOWEST_LOGQ, Node, TokenTrie

Tree = tuple[list[int], list[int], list[int], list[float]]
Paths = dict[tuple[int, ...], tuple[float, int]]

token_ids = st.integers(0, 3)
logqs = st.sampled_from([0.0, -0.1, -0.5, -1.0, -3.0])


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    n = draw(st.integers(0, 12))
    tokens = draw(st.lists(token_ids, min_size=n, max_size=n))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    sources = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    return tokens, parents, sources, draw(st.lists(logqs, min_size=n, max_size=n))


def paths_of(trie: TokenTrie) -> Paths:
    found: Paths = {}
    stack: list[tuple[tuple[int, ...], Node]] = [((), trie.root)]
    while stack:
        path, node = stack.pop()
        for token, child in node.children.items():
            found[(*path, token)] = (child.logq, child.source)
            stack.append(((*path, token), child))
    return found


def merge(paths: Paths, tree: Tree, passed: list[int]) -> None:
    tokens, parents, sources, logq = tree
    full: list[tuple[int, ...]] = []
    for i, token in enumerate(tokens):
        full.append((*(full[parents[i]] if parents[i] >= 0 else ()), token))
        depth = len(passed)
        if len(full[i]) > depth and list(full[i][:depth]) == passed:
            path = full[i][depth:]
            if path not in paths or logq[i] > paths[path][0]:
                paths[path] = (logq[i], sources[i])


class TrieMachine(RuleBasedStateMachine):
    """Insert, advance and late proposals in any order: the trie always equals the dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.trie = TokenTrie(base=5, capacity=10_000, memory=6)
        self.known = [9] * 5
        self.paths: Paths = {}

    @rule(tree=trees(), age=st.integers(0, 8))
    def propose(self, tree: Tree, age: int) -> None:
        base = self.trie.base - age
        fits = age <= min(6, len(self.known) - 5)
        passed = self.known[len(self.known) - age :] if age else []
        if fits:
            merge(self.paths, tree, passed)
        n = self.trie.insert(base, *tree)
        assert n == 0 or fits

    @rule(tokens=st.lists(token_ids, max_size=3))
    def accept(self, tokens: list[int]) -> None:
        walked = self.trie.advance(tokens)
        assert [node.token for node in walked] == tokens[: len(walked)]
        depth = len(tokens)
        self.paths = {
            p[depth:]: v for p, v in self.paths.items() if list(p[:depth]) == tokens and len(p) > depth
        }
        self.known += tokens

    @invariant()
    def same(self) -> None:
        assert paths_of(self.trie) == self.paths
        assert self.trie.size == len(self.paths)
        assert self.trie.base == len(self.known)


TestTrieMachine = TrieMachine.TestCase


def score(paths: Paths, path: tuple[int, ...]) -> float:
    return sum(paths[path[: i + 1]][0] for i in range(len(path)))


@given(trees(), st.integers(0, 15), st.integers(1, 6), st.sampled_from([-math.inf, -1.0, -0.2]))
def test_best_takes_the_highest_scores_parents_first(tree: Tree, n: int, depth: int, floor: float) -> None:
    trie = TokenTrie(base=1)
    trie.insert(1, *tree)
    paths = paths_of(trie)
    chosen = trie.best(n, max_depth=depth, min_score=floor)
    got: list[tuple[int, ...]] = []
    for node, parent in zip(chosen.nodes, chosen.parents, strict=True):
        assert parent < len(got)
        got.append((*(got[parent] if parent >= 0 else ()), node.token))
    expected = sorted((score(paths, p) for p in paths if len(p) <= depth), reverse=True)
    expected = [s for s in expected if s >= floor - 1e-12][:n]
    assert chosen.scores == pytest.approx(expected)
    assert chosen.scores == pytest.approx([score(paths, p) for p in got])
    assert len(set(got)) == len(got)
    assert all(math.isfinite(s) for s in chosen.scores)


@given(st.lists(trees(), max_size=6), st.integers(1, 8))
def test_a_full_trie_keeps_its_best_nodes_as_a_tree(many: list[Tree], capacity: int) -> None:
    trie = TokenTrie(base=0, capacity=capacity)
    for tree in many:
        before = paths_of(trie)
        merge(before, tree, [])
        trie.insert(0, *tree)
        after = paths_of(trie)
        assert trie.size == len(after) <= capacity
        assert all(p[:-1] == () or p[:-1] in after for p in after)
        kept = sorted((score(after, p) for p in after), reverse=True)
        assert len(kept) >= (len(before) if len(before) <= capacity else max(1, capacity // 2))
        assert kept == pytest.approx(sorted((score(before, p) for p in before), reverse=True)[: len(kept)])


def test_a_late_proposal_is_used_as_far_as_it_fits() -> None:
    trie = TokenTrie(base=3)
    trie.advance([10, 11])
    assert trie.insert_path(3, [10, 11, 12, 13], 0, [-0.1] * 4) == 2
    assert trie.best(4).tokens == [12, 13]
    assert trie.insert_path(3, [10, 99, 12], 0, [-0.1] * 3) == 0
    assert trie.insert_path(6, [12], 0, [-0.1]) == 0, "ahead of what is known"


def test_a_proposal_older_than_the_memory_is_dropped() -> None:
    trie = TokenTrie(base=0, memory=4)
    trie.advance([1, 2, 3, 4, 5])
    assert trie.insert_path(0, [1, 2, 3, 4, 5, 6], 0, [0.0] * 6) == 0
    assert trie.insert_path(1, [2, 3, 4, 5, 6], 0, [0.0] * 5) == 1


@pytest.mark.parametrize(
    "tree",
    [
        ([1, 2], [-1], [0, 0], [0.0, 0.0]),
        ([1, 2], [-1, 1], [0, 0], [0.0, 0.0]),
        ([1], [-2], [0], [0.0]),
        ([1], [-1], [0], []),
    ],
)
def test_a_malformed_tree_is_refused(tree: Tree) -> None:
    trie = TokenTrie(base=0)
    with pytest.raises(ValueError, match="tree"):
        trie.insert(0, *tree)
    assert trie.size == 0


def test_probabilities_out_of_range_are_clamped() -> None:
    trie = TokenTrie(base=0)
    trie.insert(0, [1, 2, 3], [-1, -1, -1], [0, 0, 0], [math.nan, 5.0, -math.inf])
    assert sorted(trie.best(3).scores) == [LOWEST_LOGQ, LOWEST_LOGQ, 0.0]


@given(trees(), st.lists(token_ids, max_size=4))
def test_tokens_refute_a_trie_when_its_likeliest_children_are_others(tree: Tree, tokens: list[int]) -> None:
    trie = TokenTrie(base=1)
    trie.insert(1, *tree)
    paths = paths_of(trie)
    expected = False
    for i, token in enumerate(tokens):
        prefix = tuple(tokens[:i])
        children = [(logq, p[-1]) for p, (logq, _) in paths.items() if p[:-1] == prefix]
        if (prefix and prefix not in paths) or not children:
            break
        likeliest = max(logq for logq, _ in children)
        if likeliest > {t: logq for logq, t in children}.get(token, -math.inf):
            expected = True
            break
        if sum(logq == likeliest for logq, _ in children) > 1:
            return  # either of two equals may be the first choice
    assert trie.refuted_by(tokens) == expected


def test_votes_tell_which_sources_agree() -> None:
    trie = TokenTrie(base=0)
    trie.insert_path(0, [1, 2], 0, [-0.1, -0.1])
    trie.insert_path(0, [1, 3], 4, [-0.5, -0.1])
    agreed, alone = trie.root.children[1], trie.root.children[1].children[3]
    assert (agreed.votes, agreed.source, alone.votes) == (0b10001, 0, 0b10000)


def test_nodes_are_weighed_with_what_the_owner_thinks_of_them() -> None:
    trie = TokenTrie(base=0)
    trie.insert_path(0, [1, 2], 0, [-0.1, -0.1])
    trie.insert_path(0, [3], 1, [-2.0])
    best = trie.best(9, min_score=-1.5, weigh=lambda node, depth: -0.2 if node.source else -float(depth))
    assert (best.tokens, best.scores) == ([3, 1], [-0.2, -1.0])
