"""Who proposes drafts to the verifier's engine, and how many of them it takes into a pass."""

from __future__ import annotations

import random
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import nullcontext

from services.draft.cpu_model import CpuDrafter, Outbox
from services.verifier.budget import Budget, Offer, Spread
from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from services.verifier.sequences import Sequence
from shared.bus.messages.sequences import Proposal, SeqOpen, SeqState
from shared.native import KvPool, Model

FREE = Budget(PassCost(24, {1: 1.0}), Calibration())  # takes whatever there is room for


class AnyBudget:
    """Takes some of the best drafts or none, by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def spread(self, offers: Seq[Offer], each: int, nodes: int, chunk: int) -> Spread:
        drafts = []
        for offer in offers:
            n = self._random.choice([0, min(each, nodes), self._random.randint(0, min(each, nodes))])
            depth = min(offer.room, offer.answer_left, self._random.randint(2, 9)) - 1
            drafts.append(offer.trie.best(n, depth))
            nodes -= len(drafts[-1])
        return Spread(drafts, 1.0, 1.0)


class Proposer:
    """Proposes nothing: plain decoding."""

    models: Seq[Model] = ()  # that write planes of their own

    def begin(self, pool: KvPool, snapshots: Mapping[int, SeqOpen]) -> None:
        """These sequences come next; those before are over."""

    def propose(self, sequence: Sequence, answered: list[int]) -> None:
        """Insert drafts behind the answer so far."""


class Arbitrary(Proposer):
    """Right, half right, wrong and late proposals, by a seed."""

    def __init__(self, truth: Mapping[int, list[int]], n_vocab: int, seed: int) -> None:
        """`truth`: what each sequence is going to answer."""
        self._truth = truth
        self._n_vocab = n_vocab
        self._random = random.Random(seed)

    def propose(self, sequence: Sequence, answered: list[int]) -> None:
        draw = self._random
        late = draw.choice([0, 0, 0, 1, 3])
        done = max(0, len(answered) - late)
        base = sequence.known - (len(answered) - done)
        for _ in range(draw.randrange(4)):
            path = self._truth[sequence.seq][done : done + draw.randrange(1, 10)]
            path += [draw.randrange(self._n_vocab) for _ in range(draw.randrange(4))]
            if path and draw.random() < 0.5:
                path[draw.randrange(len(path))] = draw.randrange(self._n_vocab)
            sequence.trie.insert_path(base, path, draw.randrange(3), [-draw.random() / 4 for _ in path])


class DraftModel(Proposer):
    """The draft service's own drafter on a real model, in step with the verifier."""

    def __init__(self, model: Model, depth: int, most_sequences: int) -> None:
        self.models = (model,)
        outbox = Outbox(self._take, lambda _: None, lambda _: nullcontext(True))
        self._drafter = CpuDrafter(model, depth, most_sequences, outbox)
        self._latest: dict[int, Proposal] = {}
        self._told: dict[int, tuple[int, int]] = {}  # epoch and answer tokens that the drafter knows

    def begin(self, pool: KvPool, snapshots: Mapping[int, SeqOpen]) -> None:
        self._told = dict.fromkeys(snapshots, (0, 0))
        self._drafter.take([pool, *snapshots.values()])

    def propose(self, sequence: Sequence, answered: list[int]) -> None:
        epoch, told = self._told[sequence.seq]
        if sequence.epoch > epoch:
            state = SeqState(
                seq=sequence.seq,
                epoch=sequence.epoch,
                kv_len=sequence.view.length,
                tokens=answered[told:],
                first_block=0,
                blocks=[],
            )
            self._told[sequence.seq] = sequence.epoch, len(answered)
            self._drafter.take([state])
        while self._drafter.step():
            pass
        proposal = self._latest.pop(sequence.seq, None)
        if proposal is not None:
            tree = proposal.tokens, proposal.parents, proposal.sources, proposal.logq
            sequence.trie.insert(proposal.base, *tree, proposal.draws)

    def _take(self, proposal: Proposal) -> None:
        self._latest[proposal.seq] = proposal
