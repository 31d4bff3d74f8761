"""Retrieval drafts from a sequence, the history and the lexicon; what draft finds of its machine."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.draft.app import shares_cores
from services.draft.history import Answer, History
from services.draft.lexicon import Lexicon
from services.draft.npu import describe_npu
from services.draft.plant import WEIGHTS, Plant
from services.draft.retrieval import NODES, Retrieval
from shared.bus.messages.sequences import SeqOpen, Source
from shared.config.cpus import plan_cpus
from shared.config.settings import Draft, Settings, Verifier
from shared.lexicon import Passages
from shared.native import EVIDENCE


def asked(tokens: list[int], prompt_len: int | None = None, max_tokens: int = 64) -> SeqOpen:
    return SeqOpen(
        seq=1, epoch=0, tokens=tokens, prompt_len=len(tokens) if prompt_len is None else prompt_len, kv_len=0,
        draft_kv_len=0, blocks=[0], sink=0, ring=64, window=32, max_tokens=max_tokens, stop_tokens=[],
        severity=1,
    )  # fmt: skip


def lexicon_of(*passages: list[int], counts: tuple[int, ...] = (1,)) -> Lexicon:
    tokens = [token for passage in passages for token in passage]
    lengths = [len(passage) for passage in passages]
    return Lexicon(Passages(*(np.array(part, np.int32) for part in (tokens, lengths, counts))))


def paths(tree: tuple[list[int], list[int], list[int], list[float]]) -> dict[tuple[int, ...], float]:
    """Each node's path with the log probability of the whole of it."""
    found: list[tuple[tuple[int, ...], float]] = []
    for token, parent, _, logq in zip(*tree, strict=True):
        before, score = found[parent] if parent >= 0 else ((), 0.0)
        found.append(((*before, token), score + logq))
    return dict(found)


def test_there_is_a_weight_for_every_kind_of_evidence() -> None:
    assert len(WEIGHTS) == EVIDENCE


def test_a_draft_follows_the_longest_match_and_keeps_the_alternative() -> None:
    tree = Retrieval(asked([5, 6, 7, 1, 2, 8, 6, 7, 3, 4, 9, 5, 6, 7]), Plant()).draft()
    found = paths(tree)
    assert (1, 2) in found
    assert found[(1,)] > found[(3,)]
    assert set(tree[2]) == {Source.RETRIEVAL}


def test_nothing_is_drafted_from_text_that_does_not_repeat() -> None:
    assert Retrieval(asked(list(range(500))), Plant()).draft() == ([], [], [], [])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=80))
def test_a_draft_is_a_tree_of_probabilities(tokens: list[int]) -> None:
    history = History(1000, [Answer.of(tokens, tokens[::-1]), Answer.of([1, 2], [3, 2, 1, 0])])
    tree = Retrieval(asked(tokens), Plant(history)).draft()
    scores = list(paths(tree).values())
    assert len(scores) == len(tree[0]) <= NODES
    assert scores == sorted(scores, reverse=True)
    together: dict[int, float] = {}
    for i, (parent, logq) in enumerate(zip(tree[1], tree[3], strict=True)):
        assert -1 <= parent < i
        assert logq < 0
        together[parent] = together.get(parent, 0.0) + math.exp(logq)
    assert all(total < 1.0 for total in together.values())


def test_an_earlier_answer_is_drafted_from_its_first_token_on() -> None:
    plant = Plant(History(1000))
    first = Retrieval(asked([1, 2, 3, 90]), plant)
    first.advance([10, 11, 12])
    first.advance([13, 14])
    first.finished()
    tree = Retrieval(asked([1, 2, 3, 90]), plant).draft()
    assert (10, 11, 12, 13, 14) in paths(tree)
    assert set(tree[2]) == {Source.HISTORY}


def test_the_answer_to_the_same_alarm_comes_before_later_answers_to_others() -> None:
    """Both stand behind the same words; only the alarm in front of them tells which is meant."""
    history = History(2000)
    template = [90, 91, 92]
    alarms = {1: [10, 11, 12], 2: [20, 21, 22], 3: [30, 31, 32]}
    for name, alarm in alarms.items():
        history.add(Answer.of([*alarm, *template], [name] * 3 + [80, 81, 82]))
    for name, alarm in alarms.items():
        tree = Retrieval(asked([*alarm, *template]), Plant(history)).draft()
        assert tree[0][0] == name
        later = Retrieval(asked([*alarm, *template, 80, 81, 82, 90, 91, 92], prompt_len=6), Plant(history))
        assert later.draft()[0][0] == name


def test_a_restarted_service_goes_on_with_the_answer_it_is_told_of() -> None:
    plant = Plant(History(1000))
    source = Retrieval(asked([1, 2, 3, 10, 11, 12], prompt_len=3), plant)
    source.advance([13])
    source.finished()
    assert plant.history is not None
    assert plant.history.index.document(0) == [1, 2, 3, 10, 11, 12, 13]
    assert plant.history.index.mark(0) == 3


def test_of_a_prompt_the_profile_is_no_part_of_the_history() -> None:
    plant = Plant(History(1000))
    opened = asked([7] * 16 + [1, 2, 3]).model_copy(update={"sink": 16})
    source = Retrieval(opened, plant)
    source.advance([10, 11, 12, 13])
    source.finished()
    assert plant.history is not None
    assert plant.history.index.document(0) == [1, 2, 3, 10, 11, 12, 13]


def test_the_lexicon_is_drafted_from_and_named() -> None:
    lexicon = lexicon_of([4, 5, 6, 7, 8])
    tree = Retrieval(asked([1, 2, 4, 5, 6]), Plant(None, lexicon)).draft()
    assert (7, 8) in paths(tree)
    assert set(tree[2]) == {Source.LEXICON}


def test_a_passage_found_often_is_worth_more_than_one_found_once() -> None:
    lexicon = lexicon_of([4, 5, 6, 7], [4, 5, 6, 8], counts=(1, 50))
    found = paths(Retrieval(asked([1, 2, 4, 5, 6]), Plant(None, lexicon)).draft())
    assert found[(8,)] > found[(7,)]


def test_wrong_drafts_make_later_ones_unlikely_and_right_ones_likely() -> None:
    """Text that nothing predicts: in the end a path is worth less than a node of a pass costs."""
    likeliest = {}
    for right in (False, True):
        source = Retrieval(asked([1, 2, 3] * 3, max_tokens=10_000), Plant())
        fresh = 1000
        for _ in range(100):
            followed = source.draft()[0]
            token = followed[0] if right and followed else fresh
            source.advance([token, 1, 2] if not right else [token])
            fresh += 1
        likeliest[right] = max(map(math.exp, source.draft()[3]), default=0.0)
    assert likeliest[False] < 0.1
    assert likeliest[True] > 0.9


def test_the_same_news_make_the_same_drafts() -> None:
    def drafts() -> list[object]:
        plant = Plant(History(500))
        said: list[object] = []
        for begin in range(4):
            source = Retrieval(asked([begin, 1, 2, 3]), plant)
            for token in (5, 6, 7, 5, 6, begin):
                said.append(source.draft())
                source.advance([token])
            source.finished()
        return [*said, plant.weights.tolist(), plant.mood]

    assert drafts() == drafts()


def test_weights_stay_within_reach_of_where_they_began() -> None:
    plant = Plant()
    plant.weights += 100
    plant.learned([True])
    assert np.abs(plant.weights - np.array(WEIGHTS, np.float32)).max() <= 4.0


@pytest.mark.parametrize(
    ("compatible", "expected"),
    [
        (b"radxa,rock-5b\0rockchip,rk3588\0", "NPU of rk3588"),
        (b"raspberrypi,5-model-b\0brcm,bcm2712\0", "no NPU on this machine: the board is"),
        (None, "no NPU on this machine: "),
    ],
)
def test_the_npu_line_says_what_the_board_is(tmp_path: Path, compatible: bytes | None, expected: str) -> None:
    if compatible is not None:
        (tmp_path / "proc/device-tree").mkdir(parents=True)
        (tmp_path / "proc/device-tree/compatible").write_bytes(compatible)
    line = describe_npu(tmp_path)
    assert line.startswith(expected)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("draft", "verifier", "cores", "expected"),
    [
        (Draft(threads=1), Verifier(threads=2), 2, True),
        (Draft(threads=1), Verifier(threads=2), 4, False),
        (Draft(threads=1, affinity=(3,)), Verifier(threads=3, affinity=(0, 1, 2)), 4, False),
        (Draft(threads=1, affinity=(2,)), Verifier(threads=3, affinity=(0, 1, 2)), 4, True),
    ],
)
def test_the_draft_steps_back_when_it_shares_cores(
    draft: Draft, verifier: Verifier, cores: int, expected: bool
) -> None:
    plan = plan_cpus(verifier, draft, dict.fromkeys(range(cores), 1024))
    assert shares_cores(Settings(draft=draft, verifier=verifier), plan, cores) is expected
