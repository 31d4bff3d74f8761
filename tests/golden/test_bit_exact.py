"""The bits of a node's logits depend on its tokens alone, on the real kernels with a real model.

In both formats of keys and values.

Not on chunk size, threads, other sequences in the pass, rejected branches, commits and re-rootings,
or where blocks lie. The reference is one token at a time on one thread.
"""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config.settings import KvFormat
from shared.native import KvPool, Model, Scratch, SequenceView, isa_names
from tests.golden.engine_runs import GOLDEN, Floats, Ids, Run, cut, open_test_model, rounded_up

SINK, WINDOW, RING = 5, 40, 72  # the ring wraps: the text is longer
LENGTH = 128
CAPACITY = 48


@pytest.fixture(scope="module")
def models() -> dict[int, Model]:
    file = open_test_model("smol")
    return {threads: file.load(threads) for threads in (1, 2)}


@pytest.fixture(scope="module")
def ids() -> Ids:
    tokens: Ids = np.load(GOLDEN / "stream_smol_a_en.npz")["ids"][:LENGTH].astype(np.int32)
    return tokens


def in_chunks(model: Model, ids: Ids, sizes: list[int], kv: KvFormat) -> Floats:
    run = Run(model, SINK, RING, WINDOW, kv=kv)
    pieces = cut(len(ids), sizes)
    return np.concatenate([run.chunk(ids[p], np.arange(p.stop - p.start, dtype=np.int32)) for p in pieces])


@pytest.fixture(scope="module", params=get_args(KvFormat))
def kv(request: pytest.FixtureRequest) -> KvFormat:
    chosen: KvFormat = request.param
    return chosen


@pytest.fixture(scope="module")
def reference(models: dict[int, Model], ids: Ids, kv: KvFormat) -> Floats:
    """Logits of every position, one token a pass, one thread."""
    return in_chunks(models[1], ids, [1], kv)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk", [1, 16, 32, 37])
def test_chunk_size_and_threads_change_nothing(
    models: dict[int, Model], ids: Ids, reference: Floats, kv: KvFormat, threads: int, chunk: int
) -> None:
    np.testing.assert_array_equal(in_chunks(models[threads], ids, [chunk], kv), reference)


@pytest.mark.parametrize("isa", isa_names())
def test_every_instruction_set_keeps_the_contract(ids: Ids, kv: KvFormat, isa: str) -> None:
    """Each variant agrees with itself for every batch size; variants may differ from each other."""
    file = open_test_model("smol")
    short = ids[:40]
    one_by_one = in_chunks(file.load(1, isa), short, [1], kv)
    np.testing.assert_array_equal(in_chunks(file.load(2, isa), short, [3, 16, 21], kv), one_by_one)


def test_a_prompt_longer_than_window_and_ring_comes_out_the_same(
    models: dict[int, Model], ids: Ids, reference: Floats, kv: KvFormat
) -> None:
    """A chain in the scratch that is itself longer than the window is masked like committed positions."""
    run = Run(models[2], SINK, RING, WINDOW, capacity=LENGTH, max_outputs=LENGTH, kv=kv)
    nodes = np.arange(LENGTH, dtype=np.int32)
    run.scratch.forward([run.view], np.zeros(LENGTH, np.int32), ids, nodes - 1, nodes)
    np.testing.assert_array_equal(run.scratch.logits(), reference)


@dataclass
class Walk:
    """Decodes the text with trees, neighbours and re-rootings drawn from `rng`; checks every true node."""

    model: Model
    ids: Ids
    reference: Floats
    kv: KvFormat
    rng: random.Random
    kept: list[int] = field(default_factory=list)  # slots of the true nodes that are in the scratch already

    def __post_init__(self) -> None:
        slots = rounded_up(SINK) + rounded_up(RING)
        self._blocks = list(range(2 * slots // 16))
        self.rng.shuffle(self._blocks)
        planes = [self.model.plane]
        memory = mmap.mmap(-1, len(self._blocks) * KvPool.block_bytes(planes, self.kv))
        self._pool = KvPool(memory, len(self._blocks), planes, self.kv)
        self.view, self._other = self._new_view(), self._new_view()
        self.scratch = Scratch(self.model, CAPACITY, CAPACITY, self.kv)

    def _new_view(self) -> SequenceView:
        view = SequenceView(self._pool, 0, SINK, rounded_up(RING), WINDOW)
        count = (rounded_up(SINK) + rounded_up(RING)) // 16
        mine = [self._blocks.pop() for _ in range(count)]
        view.set_blocks(0, np.array(mine, np.int32))
        return view

    def run(self) -> None:
        while self.view.length < len(self.ids):
            self._pass()
            self._advance()

    def _pass(self) -> None:
        """Extends the true chain by a few tokens, among wrong turns and another sequence's tokens."""
        first = self.scratch.size
        left = len(self.ids) - self.view.length - len(self.kept)
        wanted = min(self.rng.randint(1, 9), left)
        seq: list[int] = []
        tokens: list[int] = []
        parents: list[int] = []
        true: list[int] = []  # slots
        while len(true) < wanted and first + len(seq) < CAPACITY - 2:
            kind = self.rng.choice(("true", "true", "wrong", "other"))
            slot = first + len(seq)
            if kind == "other":
                seq.append(1)
                parents.append(-1)
                tokens.append(self.rng.randrange(self.model.n_vocab))
                continue
            chain = self.kept + true
            if kind == "true":
                position = self.view.length + len(chain)
                tokens.append(int(self.ids[position]))
                parents.append(chain[-1] if chain else -1)
                true.append(slot)
            else:
                tokens.append(self.rng.randrange(self.model.n_vocab))
                parents.append(self.rng.choice([-1, *chain]))
            seq.append(0)
        if not seq:
            return
        outputs = [slot - first for slot in true]
        self.scratch.forward(
            [self.view, self._other],
            np.array(seq, np.int32),
            np.array(tokens, np.int32),
            np.array(parents, np.int32),
            np.array(outputs, np.int32),
        )
        start = self.view.length + len(self.kept)
        np.testing.assert_array_equal(self.scratch.logits(), self.reference[start : start + len(true)])
        self.kept += true

    def _advance(self) -> None:
        """Commits a part of the true chain and keeps or drops what hangs below it."""
        if self.kept and (self.rng.random() < 0.7 or self.scratch.size > CAPACITY // 2):
            path = np.array(self.kept[: self.rng.randint(1, len(self.kept))], np.int32)
            self.scratch.commit(self.view, path)
            moved = self.scratch.reroot(self.view, path)
            self.kept = [int(moved[slot]) for slot in self.kept[len(path) :]]
            assert -1 not in self.kept
        if self.rng.random() < 0.2 or self.scratch.size > CAPACITY - 12:
            self.scratch.drop(self.view)
            self.scratch.drop(self._other)
            self.kept = []


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), threads=st.sampled_from([1, 2]))
def test_speculation_changes_no_bit(
    models: dict[int, Model], ids: Ids, reference: Floats, kv: KvFormat, seed: int, threads: int
) -> None:
    """Trees with wrong branches, another sequence in the pass, partial commits, re-rooting, dropped nodes."""
    Walk(models[threads], ids, reference, kv, random.Random(seed)).run()


def test_a_pass_with_a_bad_node_changes_nothing(
    models: dict[int, Model], ids: Ids, reference: Floats, kv: KvFormat
) -> None:
    """Each refusal names the problem; afterwards the same scratch goes on with the same bits."""
    run = Run(models[2], SINK, RING, WINDOW, capacity=8, max_outputs=2, kv=kv)
    other = SequenceView(run.pool, 0, SINK, rounded_up(RING), WINDOW)

    def forward(
        tokens: list[int], parents: list[int], outputs: list[int], seq: list[int] | None = None
    ) -> None:
        arrays = [np.array(a, np.int32) for a in (seq or [0] * len(tokens), tokens, parents, outputs)]
        run.scratch.forward([run.view, other], *arrays)

    first = int(ids[0])
    forward([first], [-1], [0])
    bad: list[tuple[str, Callable[[], object]]] = [
        ("vocabulary", lambda: forward([models[2].n_vocab], [0], [0])),
        ("vocabulary", lambda: forward([-1], [0], [0])),
        ("no earlier node", lambda: forward([1], [1], [0])),
        ("another sequence", lambda: forward([1], [0], [0], [1])),
        ("none of the", lambda: forward([1], [0], [0], [2])),
        ("is not a node", lambda: forward([1], [0], [1])),
        ("room for", lambda: forward([1, 2, 3], [0, 1, 2], [0, 1, 2])),
        ("do not fit", lambda: forward([1] * 8, [0] * 8, [0])),
        ("at least one node", lambda: forward([], [], [])),
        ("is not a child", lambda: run.scratch.commit(run.view, np.array([0, 0], np.int32))),
        ("does not exist", lambda: run.scratch.commit(run.view, np.array([5], np.int32))),
        ("commit it first", lambda: run.scratch.reroot(run.view, np.array([0], np.int32))),
        ("another sequence", lambda: run.scratch.commit(other, np.array([0], np.int32))),
    ]
    for message, call in bad:
        with pytest.raises(ValueError, match=message):
            call()
        assert run.scratch.size == 1
    path = np.zeros(1, np.int32)
    run.view.set_blocks(0, np.array([-1], np.int32))
    with pytest.raises(ValueError, match="covers them up to 0"):
        run.scratch.commit(run.view, path)
    run.view.set_blocks(0, np.array([0], np.int32))
    run.scratch.commit(run.view, path)
    with pytest.raises(ValueError, match="reroot or drop"):
        forward([int(ids[1])], [0], [0])
    run.scratch.reroot(run.view, path)
    forward([int(ids[1])], [-1], [0])
    np.testing.assert_array_equal(run.scratch.logits()[0], reference[1])


@pytest.mark.parametrize(("ours", "theirs"), [("f16", "int8"), ("int8", "f16")])
def test_formats_are_never_mixed(models: dict[int, Model], ours: KvFormat, theirs: KvFormat) -> None:
    """A scratch refuses a sequence whose pool has the other format, and says both."""
    view = Run(models[1], SINK, RING, WINDOW, kv=theirs).view
    scratch = Scratch(models[1], 4, 1, ours)
    token, root = np.zeros(1, np.int32), np.full(1, -1, np.int32)
    with pytest.raises(ValueError, match=rf"plane is \(.*{theirs}\), the scratch's K/V is \(.*{ours}\)"):
        scratch.forward([view], token, token, root, token)
    assert scratch.size == 0
