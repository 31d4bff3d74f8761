"""What a draft model says it computes, against the tokens that become known meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.tree import TokenTrie

tokens = st.lists(st.integers(0, 2), max_size=4)


@given(tokens, tokens, tokens)
def test_only_what_follows_exactly_the_known_tokens_is_due(
    early: list[int], late: list[int], path: list[int]
) -> None:
    """Some tokens were known before the announcement arrived, others come afterwards."""
    trie = TokenTrie(5)
    trie.advance(early)
    trie.advance(late)
    known = early + late
    rest = path[len(known) :] if path[: len(known)] == known else None
    assert trie.rest(5, path) == rest
    assert (trie.rest(5, path) == []) == (known == path)


def test_a_path_behind_tokens_that_are_not_remembered_is_nobodys() -> None:
    trie = TokenTrie(5, memory=2)
    trie.advance([1, 1, 1])
    assert trie.rest(5, [1, 1, 1]) is None
    assert trie.rest(6, [1, 1]) == []
    assert trie.rest(9, [1]) is None
