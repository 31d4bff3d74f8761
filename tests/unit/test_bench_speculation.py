"""bench.speculation: its figures, and the replayed models that stand for a device and a board."""

from __future__ import annotations

import json
import mmap
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench import device_pace
from bench import speculation_figures as figures
from bench.board_pace import Target, TargetScratch
from bench.device_pace import passes, simulate
from bench.draft_trace import Likely, Predictions, Replay, likeliest
from bench.known_answers import KnownAnswers
from bench.lockstep import After, best_lockstep, chain, pass_costs
from bench.plant import Timed
from bench.replayed_nodes import ReplayedNodes
from bench.speculation_sides import Drafting, Pace, token_ms
from bench.traces import Trace, Traced
from bench.workloads import Question
from services.draft import app, cpu_model
from services.draft.cpu_model import Outbox
from shared.bus.messages.sequences import Proposal, SeqOpen, SeqState
from shared.config.errors import RinglineError
from shared.config.settings import Profile
from shared.native import KvPool, SequenceView

PROFILE = Profile(name="p", language="en", system="s")
PLANE = (1, 1, 32)


def answer(submitted: float, pieces: list[tuple[float, int]]) -> Timed:
    """Ended with its last piece."""
    tokens = list(range(sum(n for _, n in pieces)))
    return Timed(Question("q", "q", PROFILE, [1], 1), submitted, tokens, pieces, pieces[-1][0])


def view(length: int = 0) -> SequenceView:
    pool = KvPool(mmap.mmap(-1, 4 * KvPool.block_bytes([PLANE])), 4, [PLANE])
    found = SequenceView(pool, 0, 0, 64, 64)
    found.set_blocks(0, np.arange(4, dtype=np.int32))
    found.length = length
    return found


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


# --- figures ---


def test_decoding_begins_behind_the_first_piece() -> None:
    assert figures.rate([answer(0.0, [(5.0, 1), (6.0, 3), (7.0, 1)])]) == pytest.approx(2.0)


def test_answers_at_the_same_time_share_the_time() -> None:
    one, other = answer(0.0, [(1.0, 1), (2.0, 3)]), answer(0.5, [(3.0, 4)])
    later = answer(10.0, [(11.0, 4)])
    assert figures.busy_seconds([one, other, later]) == pytest.approx(4.0)
    assert figures.whole_rate([one, other, later]) == pytest.approx(3.0)


def test_tokens_of_a_piece_come_at_once_and_a_reader_waits_between_pieces() -> None:
    found = figures.latencies([answer(0.0, [(1.0, 1), (1.2, 4)])])
    assert found["pause_ms_p50"] == pytest.approx(200.0)
    assert found["inter_token_ms_mean"] == pytest.approx(50.0)
    assert found["inter_token_ms_p50"] == 0.0
    assert found["first_token_ms_p50"] == pytest.approx(1000.0)


def test_ratios_are_of_the_same_questions() -> None:
    plain, faster = answer(0.0, [(1.0, 1), (3.0, 8)]), answer(0.0, [(1.0, 1), (2.0, 8)])
    found = figures.paired([plain], [faster])
    assert found["ratio_to_plain"] == pytest.approx(2.0)
    assert found["ratio_p50"] == pytest.approx(2.0)
    assert found["ratio_whole"] == pytest.approx(1.5)


def line(at: float, nodes: list[list[int]], answered: int, written: int) -> str:
    return json.dumps(
        {
            "at": at,
            "ms": 10.0,
            "forward": 9.0,
            "seq": 1,
            "answered": answered,
            "written": written,
            "nodes": nodes,
        }
    )


def test_acceptance_by_source_and_depth() -> None:
    drafted = line(1.0, [[0, 1, 1], [0, 2, 1], [1, 2, 0]], answered=3, written=3)
    plain = line(2.0, [], answered=1, written=1)
    chunk, elsewhere = line(1.5, [], answered=0, written=64), line(9.0, [[0, 1, 0]], answered=1, written=1)
    counted = json.dumps({"counted": {"passes": 4}})
    passes, own = figures.read_passes([drafted, chunk, plain, elsewhere, counted], [(0.0, 3.0)])
    assert own == {"passes": 4}
    found = figures.speculation(passes)
    assert found["passes"] == 2
    assert found["tokens_per_pass"] == 2.0
    assert found["share_plain"] == 0.5
    assert found["by_source"]["retrieval"]["rate"] == 1.0
    assert found["by_source"]["cpu"]["by_depth"] == {"2": {"drafted": 1, "accepted": 0, "rate": 0.0}}
    assert found["by_depth"]["2"]["rate"] == 0.5


def test_what_a_pass_takes_beside_the_model() -> None:
    """Two passes in 30 ms of decoding, 9 ms each in the model."""
    one = answer(0.0, [(1.0, 1), (1.02, 1), (1.03, 1)])
    lines = [line(at, [], answered=1, written=1) for at in (0.99, 1.019, 1.029)]
    passes, _ = figures.read_passes(lines, [(0.0, 2.0)])
    found = figures.overhead([one], passes, {"draft": 0.006})
    assert found["ms_beside_forward_per_pass"] == pytest.approx(6.0)
    assert found["cpu_ms_per_pass"]["draft"] == pytest.approx(2.0)


def test_draft_options() -> None:
    assert Drafting.parse("retrieval", alone=False).sources == ("retrieval",)
    device = Drafting.parse("device:0.37x", alone=False)
    assert device.sources == ("retrieval", "cpu")
    assert device.pace_ms(token_ms=30.0) == pytest.approx(11.1)
    assert Drafting.parse("device:25", alone=True).pace_ms(token_ms=30.0) == 25.0
    assert Drafting.parse("none", alone=False).sources == ()
    for wrong in ("device", "device:fast", "npu"):
        with pytest.raises(RinglineError, match=r"device:0\.37x"):
            Drafting.parse(wrong, alone=False)


def test_answers_given_before_are_told_from_new_ones() -> None:
    answers = [answer(0.0, [(1.0, n)]) for n in (3, 4, 4, 5)]
    assert figures.said_before([[0, 1, 2], [9]], answers) == [True, False, True, False]
    plain = [answer(0.0, [(1.0, 1), (3.0, n)]) for n in (1, 2)]
    other = [answer(0.0, [(1.0, 1), (2.0, 1)]), plain[1]]
    found = figures.by_novelty(plain, other, [True, False])
    assert found["given_before"] == {"answers": 1, "ratio_to_plain": pytest.approx(2.0)}
    assert found["new"] == {"answers": 1, "ratio_to_plain": pytest.approx(1.0)}


# --- lock-step ---


def after_of(right: list[bool]) -> After:
    """A draft model that is right about the tokens of ITEM's answer where `right` says so."""

    def after(item: Traced, i: int, path: tuple[int, ...]) -> Likely:
        return [(item.answer[i] if right[i] else 0, -0.1)]

    return after


def test_lockstep_takes_the_best_fixed_number_of_drafts() -> None:
    item = Traced(id="a", key="a", prompt=[1], answer=[5, 6, 7, 8, 9], finish="stop")
    always, never = after_of([True] * 5), after_of([False] * 5)
    best = best_lockstep([item], always, pace_ms=1.0, pass_ms=[10.0, 10.0, 10.0, 10.0])
    assert (best.drafted, best.tokens_per_pass) == (3, 4.0)
    assert best.ratio == pytest.approx(4 * 10.0 / (3 * 1.0 + 10.0))
    assert best_lockstep([item], never, 1.0, [10.0, 12.0]).ratio == pytest.approx(10.0 / 13.0)


def test_a_chain_is_as_long_as_the_draft_model_is_right() -> None:
    assert chain(ITEM, 0, after_of([True, True, False])) == 2
    assert chain(ITEM, 2, after_of([True, True, False])) == 0
    assert chain(ITEM, 1, after_of([True, True, True])) == 2


def test_pass_costs_lie_between_measured_ones_and_include_what_is_beside_a_pass() -> None:
    assert pass_costs(12.0, {"0": 10.0, "2": 14.0, "3": 15.0}) == pytest.approx([12.0, 14.0, 16.0, 17.0])


def test_the_pace_of_a_device_follows_the_plain_plant(tmp_path: Path) -> None:
    pace = Pace(Drafting.parse("device:0.5x", alone=False), tmp_path / "pace")
    for ms, expected in ((30.0, 15.0), (50.0, 25.0)):
        pace.tell(ms)
        assert float(pace.file.read_text()) == expected
    assert pace.told == [15.0, 25.0]
    assert token_ms(answer(0.0, [(1.0, 1), (1.04, 1), (1.16, 4)])) == pytest.approx(35.0)


# --- replayed models ---


def test_replayed_nodes_keep_what_descends_from_the_accepted_path() -> None:
    """Slots as a Scratch gives them: the others are dropped and the rest moves up."""
    nodes, own, other = ReplayedNodes(16), view(), view()
    first = nodes.append([own, other], ids(0, 1, 0, 0, 0), ids(10, 20, 11, 12, 13), ids(-1, -1, 0, 0, 2))
    assert first == 0
    assert nodes.path(4) == [10, 11, 13]
    nodes.commit(own, ids(0, 2))
    assert own.length == 2
    moved = nodes.reroot(own, ids(0, 2))
    assert moved.tolist() == [-1, 0, -1, -1, 1]
    assert nodes.path(1) == [13]
    assert nodes.drop(other).tolist() == [-1, 0]
    assert nodes.size == 1


def test_replayed_nodes_refuse_what_does_not_fit() -> None:
    nodes = ReplayedNodes(1)
    with pytest.raises(ValueError, match="do not fit"):
        nodes.append([view()], ids(0, 0), ids(1, 2), ids(-1, 0))
    with pytest.raises(ValueError, match="no block"):
        nodes.commit(view(length=64), ids(0, 0))


ITEM = Traced(id="a", key="a", prompt=[1, 2, 3], answer=[4, 5, 6], finish="stop")


def opened(tokens: list[int]) -> SeqOpen:
    return SeqOpen(
        seq=1,
        epoch=0,
        tokens=tokens,
        prompt_len=3,
        kv_len=0,
        draft_kv_len=0,
        blocks=[],
        sink=0,
        ring=64,
        window=64,
        max_tokens=3,
        stop_tokens=[],
        severity=1,
    )


def test_a_path_is_placed_within_the_known_answer() -> None:
    trace = Trace(workload="w", model="m", digest="d", past=0, items=[ITEM])
    answers, at_root, behind = KnownAnswers(trace), view(length=2), view(length=4)
    answers.opened(opened([1, 2, 3]), at_root)
    answers.opened(opened([1, 2, 3, 4, 5]), behind)
    root, deep = answers.place(at_root, [3]), answers.place(behind, [5, 9])
    assert root is not None
    assert (root.i, root.path) == (0, ())
    assert deep is not None
    assert (deep.i, deep.path) == (1, (5, 9))
    assert answers.place(view(), [3]) is None


def test_predictions_on_and_beside_the_answer() -> None:
    on = [[(4, -0.1)], [(7, -0.5)], [(6, -0.2)], [(0, -0.3)]]
    found = Predictions(on, {1: {(7,): [(8, -0.4)]}})
    assert found.after(0, (), ITEM.answer) == on[0]
    assert found.after(0, (4, 5), ITEM.answer) == on[2]
    assert found.after(0, (4, 7), ITEM.answer) == [(8, -0.4)]
    assert found.after(1, (7, 8), ITEM.answer) is None


def test_likeliest_tokens_have_log_probabilities() -> None:
    row = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    tokens, logq = zip(*likeliest(row), strict=True)
    assert tokens == (1, 2, 0)
    assert np.exp(logq) == pytest.approx([0.6, 0.3, 0.1], abs=1e-3)


def test_a_device_takes_a_step_a_draft_and_eight_prompt_tokens_a_step() -> None:
    assert passes(tokens=1, outputs=1) == 1
    assert passes(tokens=3, outputs=3) == 3
    assert passes(tokens=32, outputs=0) == 4
    assert passes(tokens=9, outputs=0) == 2


TRACE = Trace(workload="w", model="m", digest="d", past=0, items=[ITEM])
ON = [[(4, -0.1)], [(5, -0.2), (7, -1.0)], [(9, -0.3)], [(0, -0.1)]]


def test_the_cpu_source_drafts_on_a_simulated_device_what_the_draft_model_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service's own drafter: chunk, chain, and after a commit on from what survives."""
    for module, name in ((cpu_model, "Scratch"), (cpu_model, "DraftSequence"), (app, "open_model")):
        monkeypatch.setattr(module, name, getattr(module, name))
    for name in ("CpuDrafter", "_contends"):
        monkeypatch.setattr(app, name, getattr(app, name))
    info = SimpleNamespace(spec={"n_vocab": 80})
    file = SimpleNamespace(info=info, place=None, directory=None, report=None)
    monkeypatch.setattr(device_pace, "open_model", lambda *_: file)
    proposals: list[Proposal] = []
    counts = simulate(Replay(TRACE, {"a": Predictions(ON, {2: {(9,): [(8, -0.4)]}})}), lambda: 0.001)
    outbox = Outbox(proposals.append, lambda _: None, lambda _: nullcontext(True))
    device = vars(app)["open_model"]("draft", None).load(1, "")
    drafter = vars(app)["CpuDrafter"](device, 4, 1, outbox)
    blocks = KvPool.block_bytes([PLANE, PLANE])
    pool = KvPool(mmap.mmap(-1, 4 * blocks), 4, [PLANE, PLANE])
    snapshot = opened([1, 2, 3]).model_copy(update={"blocks": [0, 1, 2, 3]})
    drafter.take([pool, snapshot])
    (sequence,) = drafter._sequences.values()
    begun = time.monotonic()
    while drafter.step():
        pass
    assert time.monotonic() - begun >= 0.003
    assert (counts.predictions, counts.misses) == (3, 0)
    assert proposals[-1].tokens[:3] == [4, 5, 9]
    assert proposals[-1].parents[:3] == [-1, 0, 1]
    state = SeqState(seq=1, epoch=1, kv_len=4, tokens=[4, 5], first_block=0, blocks=[0, 1, 2, 3])
    drafter.take([state])
    assert sequence.view.length == 4
    assert sequence.trie.best(1).tokens == [9]


def test_a_simulated_target_gives_the_known_answer_in_the_time_of_its_curve() -> None:
    answers, own = KnownAnswers(TRACE), view(length=2)
    answers.opened(opened([1, 2, 3]), own)
    target = Target(16, 15, answers, unit_s=0.01, curve=(1.0, 1.5))
    assert target.seconds(2) == pytest.approx(0.015)
    assert target.seconds(4) == pytest.approx(0.03)
    scratch = TargetScratch(target, 8, 8)
    begun = time.monotonic()
    scratch.forward([own], ids(0, 0, 0, 0), ids(3, 4, 9, 5), ids(-1, 0, 0, 1), ids(0, 1, 3))
    assert time.monotonic() - begun >= 0.03
    assert scratch.argmax().tolist() == [4, 5, 6]
    scratch.commit(own, ids(0, 1, 3))
    scratch.clear()
    scratch.forward([own], ids(0), ids(6), ids(-1), ids(0))
    assert scratch.argmax().tolist() == [15]
