"""The index of contexts against a search that compares every place, and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.native import ContextIndex, TextDraft, log_prior

DEPTH = 32
documents = st.lists(st.lists(st.integers(0, 2), max_size=40), max_size=8)
queries = st.lists(st.integers(0, 2), max_size=40)


def ints(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, np.int32)


def filled(texts: list[list[int]], tokens: int = 2000, room: int = 100) -> ContextIndex:
    index = ContextIndex(tokens, room)
    for text in texts:
        index.begin()
        index.extend(ints(text))
    return index


def naive(texts: list[list[int]], query: list[int]) -> list[tuple[int, int, int]]:
    """(length, document, token that followed) of every match, unordered."""
    found = []
    for number, text in enumerate(texts):
        for at in range(1, len(text)):
            n = 0
            while n < min(at, len(query), DEPTH) and text[at - 1 - n] == query[-1 - n]:
                n += 1
            if n:
                found.append((n, number, text[at]))
    return found


@given(documents, queries)
def test_every_match_is_found_the_longest_first(texts: list[list[int]], query: list[int]) -> None:
    index = filled(texts)
    found = index.find(ints(query))
    assert sorted((n, number, index.token(at)) for at, n, number in found) == sorted(naive(texts, query))
    lengths = [n for _, n, _ in found]
    assert lengths == sorted(lengths, reverse=True)
    few = index.find(ints(query), 2, 3)
    assert [n for _, n, _ in few] == [n for n in lengths if n >= 2][:3]


@given(documents, queries)
def test_a_text_filled_in_at_once_is_the_one_built_step_by_step(
    texts: list[list[int]], query: list[int]
) -> None:
    at_once = ContextIndex(2000, 100)
    at_once.fill(ints([token for text in texts for token in text]), ints([len(text) for text in texts]))
    assert at_once.sorted()
    assert at_once.find(ints(query)) == filled(texts).find(ints(query))


@pytest.mark.parametrize(
    ("tokens", "lengths"), [([1, 2], [1]), ([1], [-1, 2]), ([-1], [1]), ([1] * 20, [20]), ([], [0] * 5)]
)
def test_a_text_that_does_not_fit_is_refused_and_leaves_the_index_empty(
    tokens: list[int], lengths: list[int]
) -> None:
    index = ContextIndex(20, 4)
    with pytest.raises(ValueError, match=r"token|documents"):
        index.fill(ints(tokens), ints(lengths))
    assert (index.end, index.documents) == (0, 0)
    index.fill(ints([1, 2]), ints([2]))
    with pytest.raises(ValueError, match="not empty"):
        index.fill(ints([1, 2]), ints([2]))


@given(
    st.integers(2, 60),
    st.integers(1, 2),
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 2), max_size=30)), max_size=12),
    queries,
)
def test_it_stays_within_its_bounds_and_keeps_the_newest(
    tokens: int, room: int, steps: list[tuple[bool, list[int]]], query: list[int]
) -> None:
    index = ContextIndex(tokens, room)
    said: list[list[int]] = []
    for new, text in steps:
        if new or not said:
            index.begin(len(said))
            said.append([])
        index.extend(ints(text))
        said[-1] += text
        kept = [index.document(i) for i in range(index.documents)]
        assert index.end <= tokens
        assert index.documents <= room
        assert index.dropped + index.documents == len(said)
        assert index.sorted()
        whole = said[len(said) - len(kept) :]
        assert all(text[len(text) - len(part) :] == part for text, part in zip(whole, kept, strict=True))
        assert [index.mark(i) for i in range(index.documents)] == list(range(index.dropped, len(said)))
        assert sorted((n, d, index.token(at)) for at, n, d in index.find(ints(query))) == sorted(
            naive(kept, query)
        )


def test_a_text_longer_than_the_index_leaves_its_end() -> None:
    index = filled([list(range(500))], tokens=100, room=1)
    assert index.document(0)[-60:] == list(range(440, 500))
    index.extend(ints([7]))
    assert index.document(0)[-30:] == [*range(471, 500), 7]


@pytest.mark.parametrize(("tokens", "room"), [(1, 1), (10, 0), (10, 11), (1 << 29, 1)])
def test_a_senseless_size_is_refused(tokens: int, room: int) -> None:
    with pytest.raises(ValueError, match="an index of"):
        ContextIndex(tokens, room)


def test_senseless_calls_are_refused_and_change_nothing() -> None:
    index = ContextIndex(100, 4)
    with pytest.raises(ValueError, match="no document"):
        index.extend(ints([1]))
    index.begin()
    with pytest.raises(ValueError, match="negative"):
        index.extend(ints([1, -1]))
    index.extend(ints([1, 2]))
    with pytest.raises(ValueError, match="negative"):
        index.find(ints([1, -1]))
    with pytest.raises(IndexError):
        index.token(index.end)
    with pytest.raises(ValueError, match="document 1 of 1"):
        index.document(1)
    assert index.document(0) == [1, 2]


def test_kinship_is_what_rare_words_say() -> None:
    """Every request has the template; only the code tells them apart."""
    index = ContextIndex(1000, 10)
    for code in (50, 60, 70):
        request = [1, 2, 3, code, code + 1, code + 2, 4, 5]
        index.begin(len(request))
        index.extend(ints([*request, 9, 9]))
    kinship = index.kinship(ints([1, 2, 3, 60, 61, 62, 4, 5]))
    assert kinship.argmax() == 1
    assert kinship[1] == pytest.approx(1.0)
    assert kinship[0] == kinship[2] < 0.5
    assert index.kinship(ints([800, 801])).tolist() == [0.0, 0.0, 0.0]


def test_the_prior_prefers_what_followed_and_knows_when_it_knows_nothing() -> None:
    index = filled([[1, 2, 3, 4], [1, 2, 3, 4], [7, 2, 3, 5]])
    sources = [(index, np.zeros(3, np.float32), 3)]
    often, once, never = log_prior(sources, ints([1, 2, 3]), ints([4, 5, 6]))
    assert 0 > often > once > never
    unknown = log_prior(sources, ints([9]), ints([4, 5, 6]))
    assert unknown[0] == unknown[1] == unknown[2]


def test_a_draft_refuses_senseless_arguments() -> None:
    draft = TextDraft(8)
    weights = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="weights"):
        draft.grow([], ints([1]), 0.5, weights, 8, 8, -4.0)
    with pytest.raises(ValueError, match="weights"):
        draft.learn(ints([1]), 0.1, weights)
    with pytest.raises(ValueError, match="a draft of"):
        TextDraft(0)
