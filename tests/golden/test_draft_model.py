"""The CPU source drafts what its model would say, whatever the target decided before.

SmolLM2 drafts for sequences whose answers agree with it, or do not, at random; states arrive one by one or
several at once. Every proposal is compared with the model run from scratch over the known tokens.
"""

from __future__ import annotations

import itertools
import mmap
import random
import time
from contextlib import nullcontext

import numpy as np
import pytest

from services.draft.children import likeliest
from services.draft.cpu_model import CpuDrafter, Outbox
from services.draft.mailbox import Item
from services.draft.sequences import DraftSequence
from shared.bus.messages.sequences import PlaneFilled, Proposal, SeqClose, SeqOpen, SeqState
from shared.config.settings import Paths
from shared.kv import DRAFT_PLANE
from shared.model.open import open_model
from shared.native import KvPool, Model, Scratch, SequenceView

DEPTH = 4
PROMPT = 45
ANSWER = 60
BLOCKS = 12
SINK, RING, WINDOW = 16, 80, 48  # it wraps within an answer


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest) -> Model:
    return open_model("smollm2-135m", Paths(data=request.getfixturevalue("data_dir"))).load(2)


@pytest.fixture(scope="module")
def prompts(request: pytest.FixtureRequest) -> list[list[int]]:
    file = open_model("smollm2-135m", Paths(data=request.getfixturevalue("data_dir")))
    text = "Boiler B1: water level low, 31 %. Conveyor K7: motor overload relay tripped twice. "
    tokens = file.tokenizer().encode(text * 4)
    return [tokens[i : i + PROMPT] for i in (0, 7)]


class Reference:
    """The model from scratch: what follows these tokens?"""

    def __init__(self, model: Model) -> None:
        self._scratch = Scratch(model, 256, 1)
        self._pool = KvPool(mmap.mmap(-1, KvPool.block_bytes([model.plane])), 1, [model.plane])

    def after(self, tokens: list[int]) -> list[int]:
        """The drafter's children of the last token."""
        n = len(tokens)
        self._scratch.clear()
        view = SequenceView(self._pool, 0, SINK, RING, WINDOW)
        arrays = np.zeros(n, np.int32), np.array(tokens, np.int32), np.arange(-1, n - 1, dtype=np.int32)
        self._scratch.forward([view], *arrays, np.array([n - 1], np.int32))
        return likeliest(self._scratch.logits()[0]).tokens


class World:
    """The rest of the plant as the drafter sees it: two sequences, and a target with a mind of its own."""

    def __init__(self, model: Model, prompts: list[list[int]], agreement: float, seed: int) -> None:
        planes = [model.plane, model.plane]
        self.pool = KvPool(mmap.mmap(-1, KvPool.block_bytes(planes) * BLOCKS), BLOCKS, planes)
        self.proposals: list[Proposal] = []
        self.filled: dict[int, int] = {}
        outbox = Outbox(self.proposals.append, self._fill, lambda _seq: nullcontext(True))
        self.drafter = CpuDrafter(model, DEPTH, max_sequences=2, outbox=outbox)
        self.tokens = {seq: list(prompt) for seq, prompt in enumerate(prompts, start=1)}
        self.epochs = dict.fromkeys(self.tokens, 0)
        self._agreement = agreement
        self._random = random.Random(seed)
        self._reference = Reference(model)

    def snapshot(self, seq: int) -> SeqOpen:
        first = (seq - 1) * BLOCKS // 2
        return SeqOpen(
            seq=seq,
            epoch=self.epochs[seq],
            tokens=list(self.tokens[seq]),
            prompt_len=PROMPT,
            kv_len=0,
            draft_kv_len=self.filled.get(seq, 0),
            blocks=list(range(first, first + BLOCKS // 2)),
            sink=SINK,
            ring=RING,
            window=WINDOW,
            max_tokens=ANSWER,
            stop_tokens=[],
            severity=1,
        )

    def decide(self, seq: int) -> SeqState:
        """A pass of the target: one to four tokens, the model's own or others."""
        new: list[int] = []
        for _ in range(self._random.randrange(1, 5)):
            agrees = self._random.random() < self._agreement
            wish = self._reference.after(self.tokens[seq] + new)[0]
            new.append(wish if agrees else self._random.randrange(1000, 40_000))
        self.tokens[seq] += new
        self.epochs[seq] += 1
        kv_len = len(self.tokens[seq]) - 1
        return SeqState(seq=seq, epoch=self.epochs[seq], kv_len=kv_len, tokens=new, first_block=0, blocks=[])

    def check(self) -> int:
        """Compare what was proposed with the model from scratch; the number of proposals."""
        latest = {p.seq: p for p in self.proposals}
        for proposal in latest.values():
            known = self.tokens[proposal.seq]
            assert proposal.base == len(known)
            self._check_tree(known, proposal)
        count = len(self.proposals)
        self.proposals.clear()
        return count

    def _check_tree(self, known: list[int], proposal: Proposal) -> None:
        paths: list[list[int]] = []
        for token, parent in zip(proposal.tokens, proposal.parents, strict=True):
            before = paths[parent] if parent >= 0 else []
            assert token in self._reference.after(known + before)
            paths.append([*before, token])
        assert max(len(path) for path in paths) <= DEPTH

    def _fill(self, message: PlaneFilled) -> None:
        assert message.kv_len > self.filled.get(message.seq, 0)
        assert message.kv_len <= len(self.tokens[message.seq]) - 1
        self.filled[message.seq] = message.kv_len


@pytest.mark.parametrize(("agreement", "seed"), [(1.0, 1), (0.6, 2), (0.0, 3)])
def test_drafts_are_the_models_own_after_any_verdicts(
    model: Model, prompts: list[list[int]], agreement: float, seed: int
) -> None:
    world = World(model, prompts, agreement, seed)
    draw = random.Random(seed)
    world.drafter.take([world.pool, world.snapshot(1), world.snapshot(2)])
    proposed = 0
    for _ in range(8):
        for _ in range(draw.randrange(8)):
            world.drafter.step()
        proposed += world.check()
        news: list[Item] = [
            world.decide(seq)
            for seq in (1, 2)
            for _ in range(draw.choice([0, 1, 2]))
            if len(world.tokens[seq]) < PROMPT + ANSWER - 20
        ]
        world.drafter.take(news)
    assert proposed > 5


def test_a_proposal_says_what_will_be_known_next_and_when(model: Model, prompts: list[list[int]]) -> None:
    """The proposal behind it has what follows that path; the first one of an answer follows its root."""
    world = World(model, prompts, 1.0, 9)
    world.drafter.take([world.pool, world.snapshot(1)])
    while world.drafter.step():
        pass
    assert len(world.proposals) > 2
    for before, after in itertools.pairwise(world.proposals):
        assert before.next is not None
        assert tuple(before.next) not in followed(before)
        assert tuple(before.next) in followed(after)
        assert time.monotonic() - 60 < before.due < time.monotonic() + 60
    assert world.proposals[-1].next is None, "it is deep enough"


def followed(proposal: Proposal) -> set[tuple[int, ...]]:
    """Paths of a proposal's tree that something follows."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(proposal.tokens, proposal.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return {path[:-1] for path in paths}


def test_a_drafter_that_is_back_goes_on_where_its_plane_ends(model: Model, prompts: list[list[int]]) -> None:
    """A new drafter over the same pool: the first part of the plane is not computed again."""
    world = World(model, prompts, 1.0, 4)
    world.drafter.take([world.pool, world.snapshot(1)])
    world.drafter.step()
    before = world.filled[1]
    assert 0 < before < PROMPT - 1
    outbox = Outbox(world.proposals.append, world._fill, lambda _seq: nullcontext(True))
    world.drafter = CpuDrafter(model, DEPTH, 2, outbox)
    world.drafter.take([world.pool, world.snapshot(1)])
    assert world.drafter.step()
    assert world.filled[1] == PROMPT - 1
    while world.drafter.step():
        pass
    assert world.check() > 0


def test_an_idle_drafter_stops_at_its_depth_and_a_closed_sequence_is_gone(
    model: Model, prompts: list[list[int]]
) -> None:
    world = World(model, prompts, 1.0, 5)
    world.drafter.take([world.pool, world.snapshot(1)])
    steps = 0
    while world.drafter.step():
        steps += 1
        assert steps < 20
    world.drafter.take([SeqClose(seq=1, reason="done")])
    assert not world.drafter.step()


def test_nothing_is_written_for_a_sequence_whose_blocks_are_given_back(
    model: Model, prompts: list[list[int]]
) -> None:
    world = World(model, prompts, 1.0, 6)
    outbox = Outbox(world.proposals.append, world._fill, lambda _seq: nullcontext(False))
    world.drafter = CpuDrafter(model, DEPTH, 2, outbox)
    world.drafter.take([world.pool, world.snapshot(1)])
    world.drafter.step()
    assert world.filled == {}


def test_a_missing_state_stops_drafting_until_the_next_snapshot(
    model: Model, prompts: list[list[int]]
) -> None:
    world = World(model, prompts, 1.0, 7)
    world.drafter.take([world.pool, world.snapshot(1)])
    world.decide(1)
    world.drafter.take([world.decide(1)])
    assert not world.drafter.step()
    world.drafter.take([world.snapshot(1)])
    while world.drafter.step():
        pass
    assert world.check() > 0


def test_a_prefix_is_computed_to_its_last_token_and_nothing_is_proposed(
    model: Model, prompts: list[list[int]]
) -> None:
    world = World(model, prompts, 1.0, 8)
    snapshot = world.snapshot(1).model_copy(update={"max_tokens": 0})
    sequence = DraftSequence(snapshot, world.pool, DRAFT_PLANE)
    assert sequence.behind == PROMPT
    world.drafter.take([world.pool, snapshot])
    world.tokens[1].append(0)  # lets `_fill` accept the whole prefix
    while world.drafter.step():
        pass
    assert world.filled == {1: PROMPT}
    assert world.proposals == []
