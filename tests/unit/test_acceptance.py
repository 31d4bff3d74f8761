"""Walking a tree of drafts: what is accepted, and where an answer ends."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.verifier.acceptance import Verdict, walk
from services.verifier.stops import StopStrings

tokens = st.integers(0, 3)
TEXTS = (b"a", b"b", b"ab", b"ba")


def accept(
    tree: tuple[list[int], list[int], list[int]],
    stop: frozenset[int],
    room: int,
    strings: tuple[str, ...] = (),
) -> Verdict:
    names, parents, choices = tree
    ends = StopStrings(strings, ()).ends(stop, TEXTS.__getitem__)
    return walk(names, parents, lambda node, _: choices[node], ends, room)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Tokens, parents and the target's choices; node 0 is the root."""
    n = draw(st.integers(1, 12))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, n)]
    one = st.lists(tokens, min_size=n, max_size=n)
    return draw(one), parents, draw(one)


def plain(tree: tuple[list[int], list[int], list[int]], stop: frozenset[int], room: int) -> list[int]:
    """One token after the other, as far as the tree knows the target's choices."""
    names, parents, choices = tree
    out: list[int] = []
    node: int | None = 0
    while node is not None and choices[node] not in stop and len(out) < room:
        out.append(choices[node])
        here = node
        following = (i for i in range(1, len(names)) if parents[i] == here and names[i] == choices[here])
        node = next(following, None)
    return out


@given(trees(), st.frozensets(tokens, max_size=2), st.integers(1, 6))
def test_greedy_acceptance_is_plain_decoding_as_far_as_the_tree_reaches(
    tree: tuple[list[int], list[int], list[int]], stop: frozenset[int], room: int
) -> None:
    verdict = accept(tree, stop, room)
    assert verdict.tokens == plain(tree, stop, room)
    names, parents, choices = tree
    assert verdict.path[0] == 0
    for before, node in zip(verdict.path, verdict.path[1:], strict=False):
        assert parents[node] == before
        assert names[node] == choices[before]


@given(trees(), st.frozensets(tokens, max_size=2), st.integers(1, 6))
def test_no_token_behind_a_stop_or_the_limit_enters_the_pool(
    tree: tuple[list[int], list[int], list[int]], stop: frozenset[int], room: int
) -> None:
    verdict = accept(tree, stop, room)
    assert not stop & set(verdict.tokens)
    assert not stop & {tree[0][node] for node in verdict.path[1:]}
    assert len(verdict.path) == len(verdict.tokens) + (verdict.finish == "stop")
    if verdict.finish == "length":
        assert len(verdict.tokens) == room
    assert len(verdict.tokens) <= room


strings = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple)


@given(trees(), st.integers(1, 9), strings)
def test_an_answer_ends_with_the_token_that_completes_a_stop_string(
    tree: tuple[list[int], list[int], list[int]], room: int, stops: tuple[str, ...]
) -> None:
    """Nothing behind that token is emitted or enters the pool, and no token before it completes one."""
    verdict, free = accept(tree, frozenset(), room, stops), accept(tree, frozenset(), room)
    assert verdict.tokens == free.tokens[: len(verdict.tokens)]
    text = b"".join(TEXTS[token] for token in verdict.tokens)
    before = text[: len(text) - len(TEXTS[verdict.tokens[-1]])]
    assert not any(stop.encode() in before for stop in stops)
    assert (verdict.finish == "stop") == any(stop.encode() in text for stop in stops)
    if verdict.finish == "stop":
        assert len(verdict.path) == len(verdict.tokens)
    else:
        assert verdict == free


@given(st.lists(tokens, max_size=20), strings, st.lists(st.integers(0, 20), max_size=6))
def test_a_stop_string_is_found_whatever_passes_its_tokens_came_in(
    answer: list[int], stops: tuple[str, ...], cuts: list[int]
) -> None:
    """Also when the sequence was taken up again from a snapshot in between."""

    def ended(state: StopStrings, chain: list[int]) -> bool:
        ends = state.ends(frozenset(), TEXTS.__getitem__)
        return sum(ends.completes(token) for token in chain) > 0

    whole = ended(StopStrings(stops, ()), answer)
    borders = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    state, found = StopStrings(stops, ()), False
    for number, (begin, end) in enumerate(pairwise(borders)):
        chain = answer[begin:end]
        found = found or ended(state, chain)
        assert ended(state, chain) == ended(state, chain), "judging again changes nothing"
        state.take(chain)
        if number % 2:
            state = StopStrings(stops, answer[:end])
    assert found == whole


def test_a_stop_string_that_begins_in_the_prompt_does_not_end_the_answer() -> None:
    """Only the answer is looked at."""
    assert accept(([0, 0], [-1, 0], [1, 1]), frozenset(), 2, ("ab",)).finish is None
