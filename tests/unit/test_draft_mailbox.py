"""What reaches the draft model's thread: what lives, no more than it can use, nothing while it pauses."""

from __future__ import annotations

import threading

from services.draft.mailbox import MOST_BEHIND, Mailbox
from shared.bus.messages.sequences import SeqAppend, SeqClose, SeqOpen, SeqState
from shared.native import KvPool


def opened(seq: int) -> SeqOpen:
    return SeqOpen(
        seq=seq, epoch=0, tokens=[1], prompt_len=1, kv_len=0, draft_kv_len=0, blocks=[0], sink=0, ring=64,
        window=32, max_tokens=8, stop_tokens=[], severity=1,
    )  # fmt: skip


def state(seq: int, epoch: int = 1, tokens: int = 1) -> SeqState:
    return SeqState(seq=seq, epoch=epoch, kv_len=1, tokens=[1] * tokens, first_block=0, blocks=[])


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
    reader.join(0.1)
    assert reader.is_alive()
    mailbox.close()
    reader.join(10)
    assert got == [None]


def test_a_paused_reader_sleeps_until_it_is_resumed() -> None:
    mailbox, taken = Mailbox(), list[object]()
    mailbox.pause(True)
    mailbox.put(opened(1))
    reader = threading.Thread(target=lambda: taken.append(mailbox.take(0.0)))
    reader.start()
    reader.join(0.1)
    assert reader.is_alive()
    mailbox.pause(False)
    reader.join(10.0)
    assert taken == [[opened(1)]]


def test_a_paused_reader_can_be_stopped() -> None:
    mailbox, taken = Mailbox(), list[object]()
    mailbox.pause(True)
    reader = threading.Thread(target=lambda: taken.append(mailbox.take(0.0)))
    reader.start()
    reader.join(0.1)
    assert reader.is_alive()
    mailbox.close()
    reader.join(10.0)
    assert taken == [None]


def test_a_sequence_that_runs_away_during_a_pause_is_given_up_and_the_queue_stays_short() -> None:
    mailbox = Mailbox()
    mailbox.put(opened(1))
    mailbox.put(opened(2))
    mailbox.take(0.0)
    mailbox.pause(True)
    for epoch in range(1, 4 * MOST_BEHIND):
        mailbox.put(state(1, epoch))
    mailbox.put(state(2, 1, MOST_BEHIND))
    mailbox.put(SeqAppend(seq=3, known=1, tokens=[1] * 1000, first_block=0, blocks=[]))
    mailbox.pause(False)
    news = [item for item in mailbox.take(0.0) or [] if not isinstance(item, KvPool)]
    assert len(news) <= MOST_BEHIND + 2
    assert isinstance(next(item for item in news if item.seq == 1), SeqClose)
    assert [item for item in news if item.seq == 2] == [state(2, 1, MOST_BEHIND)]
    assert 3 not in {item.seq for item in news}, "the reader has never heard of it"


def test_a_new_snapshot_is_followed_again() -> None:
    mailbox = Mailbox()
    mailbox.pause(True)
    mailbox.put(opened(1))
    mailbox.put(state(1, 1, MOST_BEHIND + 1))
    mailbox.put(opened(1))
    mailbox.put(state(1, 1))
    mailbox.pause(False)
    assert mailbox.take(0.0) == [opened(1), state(1, 1)]
