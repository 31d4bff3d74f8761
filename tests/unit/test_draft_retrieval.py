"""Retrieval drafts against a naive search, and the small parts of the draft service."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.draft.app import shares_cores
from services.draft.mailbox import Mailbox
from services.draft.npu import describe_npu
from services.draft.retrieval import (
    HISTORY,
    LONGEST_MATCH,
    ORDERS,
    Confidence,
    Match,
    Retrieval,
    SuffixIndex,
)
from shared.bus.messages import SeqClose, SeqOpen, SeqState
from shared.config.cpus import plan_cpus
from shared.config.settings import Draft, Settings, Verifier
from shared.native import KvPool

token_lists = st.lists(st.integers(0, 2), max_size=60)


def naive_length(tokens: list[int], at: int) -> int:
    """How many tokens before `at` equal the last ones."""
    n = 0
    while n < min(LONGEST_MATCH, at) and tokens[at - n - 1] == tokens[len(tokens) - n - 1]:
        n += 1
    return n


@given(token_lists, st.lists(st.integers(1, 7), max_size=8))
def test_the_longest_earlier_suffix_is_found_however_the_tokens_came(
    tokens: list[int], cuts: list[int]
) -> None:
    index = SuffixIndex()
    begin = 0
    for cut in [*cuts, len(tokens)]:
        index.extend(tokens[begin : begin + cut])
        begin += cut
    found = index.matches()
    lengths = {at: naive_length(tokens, at) for at in range(1, len(tokens))}
    longest = max(lengths.values(), default=0)
    if longest < min(ORDERS):
        assert found == []
        return
    assert all(lengths[match.at] == match.length for match in found)
    assert found == sorted(found, key=lambda match: (-match.length, -match.at))
    order = next(order for order in ORDERS if order <= longest)
    latest = [at for at in sorted(lengths, reverse=True) if lengths[at] >= order][: len(found)]
    assert sorted(match.at for match in found) == sorted(latest)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(3, 6))
def test_a_period_is_continued_beyond_the_end(period: list[int], times: int) -> None:
    tokens = period * times
    index = SuffixIndex(tokens)
    longest = index.matches()
    if longest:
        expected = (period * (24 // len(period) + 1))[:20]
        assert index.continuation(Match(len(tokens) - len(period), 2), 20) == expected


def test_the_index_stays_bounded_and_keeps_the_newest() -> None:
    index = SuffixIndex()
    for begin in range(0, 3 * HISTORY, 1000):
        index.extend([(begin + i) % 5003 for i in range(1000)])
        assert len(index) <= HISTORY
    index.extend([7001, 7002, 7003, 8, 9, 7001, 7002, 7003])
    assert index.continuation(index.matches()[0], 2) == [8, 9]
    assert index.matches()[0].length == 3


def test_a_draft_follows_the_longest_match_and_keeps_the_alternative() -> None:
    source = Retrieval([5, 6, 7, 1, 2, 5, 6, 7, 3, 4, 9, 5, 6, 7], Confidence())
    best = source.draft(14).best(48)
    firsts = {node.token for node, parent in zip(best.nodes, best.parents, strict=True) if parent == -1}
    assert firsts == {1, 3}
    assert all(-10 < node.logq < 0 for node in best.nodes)


def test_nothing_is_drafted_from_text_that_does_not_repeat() -> None:
    assert len(Retrieval(range(500), Confidence()).draft(500).best(8)) == 0


def test_wrong_drafts_make_later_ones_shorter_and_right_ones_longer() -> None:
    bad, good = Confidence(), Confidence()
    for _ in range(300):
        bad.learn(2, False)
        good.learn(2, True)
    assert bad.logq(2) < Confidence().logq(2) < good.logq(2) < 0
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    assert len(Retrieval(text, bad).draft(10).best(48)) < len(Retrieval(text, good).draft(10).best(48))


def test_a_source_learns_from_what_the_target_said() -> None:
    confidence = Confidence()
    before = confidence.logq(2)
    for _ in range(20):
        source = Retrieval([1, 2, 3, 9, 1, 2], confidence)
        source.draft(6)
        source.advance([3, 8])
    assert confidence.logq(2) > before
    assert confidence.logq(3) < Confidence().logq(3)


def state(seq: int) -> SeqState:
    return SeqState(seq=seq, epoch=1, kv_len=1, tokens=[1], first_block=0, blocks=[])


def opened(seq: int) -> SeqOpen:
    return SeqOpen(
        seq=seq, epoch=0, tokens=[1], prompt_len=1, kv_len=0, draft_kv_len=0, blocks=[0], sink=0, ring=64,
        window=32, max_tokens=8, stop_tokens=[], severity=1,
    )  # fmt: skip


def may_write(mailbox: Mailbox, seq: int) -> bool:
    with mailbox.writing(seq) as allowed:
        return allowed


def test_news_of_a_closed_sequence_is_dropped_and_it_is_not_written_to() -> None:
    mailbox = Mailbox()
    mailbox.put(opened(1))
    mailbox.put(opened(2))
    mailbox.take(0.0)
    mailbox.put(state(1))
    mailbox.put(state(2))
    assert may_write(mailbox, 1)
    mailbox.put(SeqClose(seq=1, reason="done"))
    assert not may_write(mailbox, 1)
    assert may_write(mailbox, 2)
    assert mailbox.take(0.0) == [state(2), SeqClose(seq=1, reason="done")]


def test_a_mailbox_that_nobody_reads_keeps_only_what_lives() -> None:
    mailbox = Mailbox()
    for seq in range(1, 500):
        mailbox.put(opened(seq))
        mailbox.put(state(seq))
        mailbox.put(SeqClose(seq=seq, reason="done"))
    mailbox.put(opened(500))
    assert mailbox.take(0.0) == [opened(500)]


def test_after_a_new_pool_nothing_is_written_until_the_reader_has_it() -> None:
    mailbox = Mailbox()
    mailbox.put(opened(1))
    mailbox.take(0.0)
    pool = KvPool(bytearray(KvPool.block_bytes([(1, 1, 64)])), 1, [(1, 1, 64)])
    mailbox.put(state(1))
    mailbox.put(pool)
    mailbox.put(opened(1))
    assert not may_write(mailbox, 1)
    assert mailbox.take(0.0) == [pool, opened(1)]
    assert may_write(mailbox, 1)


def test_a_closed_mailbox_keeps_nothing() -> None:
    mailbox = Mailbox()
    mailbox.put(opened(1))
    mailbox.close()
    mailbox.put(opened(2))
    assert mailbox.take(0.0) is None
    assert mailbox._items == []


def test_closing_the_mailbox_wakes_its_reader() -> None:
    mailbox = Mailbox()
    got: list[object] = []
    reader = threading.Thread(target=lambda: got.append(mailbox.take(60.0)))
    reader.start()
    mailbox.close()
    reader.join(10)
    assert got == [None]


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
