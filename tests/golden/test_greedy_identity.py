"""Speculation changes nothing: with any proposals, tokens and logits are plain decoding's, bit for bit.

The verifier's own engine runs SmolLM2 over twenty alarms. Proposals are arbitrary: the true continuation, the
true one with a wrong turn, noise, old ones. Everything is compared with one token at a time on one thread.
"""

from __future__ import annotations

import hashlib
import mmap
import random
import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from services.verifier.batch import Limits, Plan, Spreading, compose
from services.verifier.budget import Budget, Offer, Spread
from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from services.verifier.engine import Engine, Failure, Outcome
from services.verifier.sequences import Sequence
from services.verifier.stops import TokenBytes, no_bytes
from shared.bus.messages.requests import GREEDY, Sampling
from shared.bus.messages.sequences import SeqOpen, SeqState
from shared.config.settings import KvFormat, Paths
from shared.model.open import ModelFile, open_model
from shared.native import KvPool, Model

ALARMS = (
    "CNC-3 E104: spindle temperature 92 °C, limit 85 °C. Coolant flow normal.",
    "三号数控机床主轴温度过高：92℃，上限85℃，冷却液流量正常。",
    "Boiler B1: feed water level low, 31 %, limit 35 %. Pump P2 running.",
    "一号锅炉给水液位低：31%，下限35%，二号泵运行中。",
    "Conveyor K7 stopped: motor overload relay tripped twice within 10 minutes.",
    "七号输送带停机：电机过载继电器十分钟内两次跳闸。",
    "Packaging line PK-2: label sensor misses 12 of 100 labels.",
    "二号包装线：标签传感器一百张漏检十二张。",
    "Air compressor C1: outlet pressure 5.1 bar falls below 5.5 bar.",
    "一号空压机出口压力5.1bar，低于5.5bar。",
    "PLC S7 communication timeout to remote I/O rack 4, three times since 06:12.",
    "PLC与四号远程IO机架通信超时，自06:12起三次。",
    "Robot R5: axis 3 position deviation 0.8 mm, limit 0.5 mm.",
    "五号机器人三轴位置偏差0.8毫米，限值0.5毫米。",
    "Tank T2: level 97 %, high-high alarm, inlet valve V12 does not close.",
    "二号储罐液位97%，高高报警，进料阀V12未关闭。",
    "Chiller CH1: refrigerant pressure high, condenser fan 2 is off.",
    "一号冷水机冷媒压力高，冷凝风机2停止。",
    "Press H9: hydraulic oil temperature 71 °C, filter clogging indicator on.",
    "九号压力机液压油温71℃，滤芯堵塞指示灯亮。",
)
ANSWER = 24
WINDOW = 256
MAX_COMMIT = 64
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


@pytest.fixture(scope="module")
def file(data_dir: Path) -> ModelFile:
    return open_model("smollm2-135m", Paths(data=data_dir))


@pytest.fixture(scope="module")
def models(file: ModelFile) -> dict[int, Model]:
    return {threads: file.load(threads) for threads in (1, 2)}


def render(file: ModelFile) -> list[list[int]]:
    tokenizer = file.tokenizer()
    form = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    return [tokenizer.encode_special(form.format(alarm)) for alarm in ALARMS]


@pytest.fixture(scope="module")
def prompts(file: ModelFile) -> list[list[int]]:
    return render(file)


class Plant:
    """A pool and the part of context that a sequence needs: blocks, states after commits."""

    def __init__(self, model: Model, blocks: int = 256, kv: KvFormat = "f16") -> None:
        buffer = mmap.mmap(-1, KvPool.block_bytes([model.plane], kv) * blocks)
        self.pool = KvPool(buffer, blocks, [model.plane], kv)
        self._free = list(range(blocks))
        random.Random(5).shuffle(self._free)  # the place of a block must not matter

    def open(
        self,
        seq: int,
        tokens: list[int],
        stop: tuple[int, ...],
        max_tokens: int = ANSWER,
        sampling: Sampling = GREEDY,
        strings: tuple[str, ...] = (),
    ) -> Sequence:
        ring = WINDOW + 2 * MAX_COMMIT
        snapshot = SeqOpen(
            seq=seq,
            epoch=0,
            tokens=tokens,
            prompt_len=len(tokens),
            kv_len=0,
            draft_kv_len=0,
            blocks=[self._free.pop() for _ in range(-(-(len(tokens) + max_tokens) // 16))],
            sink=16,
            ring=ring,
            window=WINDOW,
            max_tokens=max_tokens,
            stop_tokens=list(stop),
            stop=list(strings),
            sampling=sampling,
            severity=1,
        )
        return Sequence(snapshot, self.pool, 0, time.monotonic())


@dataclass
class Run:
    """What a sequence answered; `logits`: a digest of every accepted node's row, in order."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    passes: int = 0
    logits: list[bytes] = field(default_factory=list)


class Recorder(Engine):
    """The engine, keeping the logits that its choices came from."""

    def __init__(
        self, model: Model, limits: Limits, kv: KvFormat = "f16", token_bytes: TokenBytes = no_bytes
    ) -> None:
        super().__init__(model, limits, kv, token_bytes)
        self.rows: NDArray[np.float32] = np.zeros((0, 0), np.float32)

    def _forward(self, plan: Plan[Sequence]) -> list[int]:
        choices = super()._forward(plan)
        self.rows = self._scratch.logits().copy() if self._arrays.n_outputs else self.rows
        return choices

    def accepted_rows(self, plan: Plan[Sequence], outcomes: list[Outcome | Failure]) -> dict[int, list[int]]:
        """Rows of `rows` that the accepted nodes of each sequence have."""
        rows: dict[int, list[int]] = {}
        output, rest = 0, list(outcomes)
        if plan.chunk is not None:
            rest.pop(0)
            if plan.chunk.last and plan.chunk.sequence.answer_left:
                rows[plan.chunk.sequence.seq] = [0]
                output = 1
        for tree, outcome in zip(plan.trees, rest, strict=True):
            assert isinstance(outcome, Outcome)
            rows[tree.sequence.seq] = [output + node for node in outcome.verdict.path]
            output += 1 + len(tree.drafts)
        return rows


def digest(row: NDArray[np.float32]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def acknowledge(sequence: Sequence) -> None:
    state = SeqState(
        seq=sequence.seq,
        epoch=sequence.epoch,
        kv_len=sequence.view.length,
        tokens=[],
        first_block=0,
        blocks=[],
    )
    assert sequence.confirm(state)


def run(
    engine: Recorder,
    limits: Limits,
    sequences: list[Sequence],
    proposer: Proposer,
    budget: Spreading = FREE,
) -> dict[int, Run]:
    """Run until every sequence has finished."""
    runs = {s.seq: Run() for s in sequences}
    while any(not s.finished for s in sequences):
        for s in sequences:
            proposer.propose(s, runs[s.seq].tokens)
        plan = compose([s for s in sequences if s.runnable], limits, budget)
        outcomes = engine.run(plan)
        rows = engine.accepted_rows(plan, outcomes)
        for outcome in outcomes:
            assert isinstance(outcome, Outcome)
            record, sequence = runs[outcome.sequence.seq], outcome.sequence
            record.passes += 1
            record.tokens += outcome.verdict.tokens
            record.finish = outcome.verdict.finish
            record.logits += [digest(engine.rows[row]) for row in rows.get(sequence.seq, [])]
            sequence.advance(outcome.written, outcome.verdict, time.monotonic())
            acknowledge(sequence)
    return runs


class Proposer:
    """Proposes nothing: plain decoding."""

    def propose(self, sequence: Sequence, answered: list[int]) -> None:
        """Insert drafts behind the answer so far."""


class Arbitrary(Proposer):
    """Right, half right, wrong and late proposals, by a seed."""

    def __init__(self, truth: dict[int, list[int]], n_vocab: int, seed: int) -> None:
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


@pytest.fixture(scope="module")
def plain(file: ModelFile, models: dict[int, Model], prompts: list[list[int]]) -> dict[int, Run]:
    """Every prompt alone, token by token, one thread, chunks of one."""
    return answer_plainly(models[1], prompts, file.info.stop_tokens, chunk=1, answer=ANSWER)


@pytest.fixture(scope="module")
def plain_int8(file: ModelFile, models: dict[int, Model], prompts: list[list[int]]) -> dict[int, Run]:
    """The same with int8 keys and values."""
    return answer_plainly(models[1], prompts, file.info.stop_tokens, chunk=1, answer=ANSWER, kv="int8")


def seeded(sampling: Sampling, seq: int) -> Sampling:
    """A seed of its own for each sequence."""
    return sampling.model_copy(update={"seed": seq}) if sampling.temperature else sampling


def answer_plainly(
    model: Model,
    prompts: list[list[int]],
    stop: tuple[int, ...],
    chunk: int,
    answer: int,
    kv: KvFormat = "f16",
    sampling: Sampling = GREEDY,
) -> dict[int, Run]:
    limits = Limits(0, 1, chunk)
    engine = Recorder(model, limits, kv)
    runs: dict[int, Run] = {}
    for seq, prompt in enumerate(prompts, start=1):
        sequence = Plant(model, 32, kv).open(seq, prompt, stop, answer, seeded(sampling, seq))
        runs |= run(engine, limits, [sequence], Proposer())
    return runs


def check_speculation(
    model: Model,
    prompts: list[list[int]],
    stop: tuple[int, ...],
    plain: dict[int, Run],
    chunk: int,
    company: int,
    answer: int,
    kv: KvFormat = "f16",
    sampling: Sampling = GREEDY,
) -> None:
    """Groups of `company` + 1 sequences with arbitrary proposals answer as they did alone and plainly."""
    limits = Limits(7, 24, chunk)
    engine = Recorder(model, limits, kv)
    truth = {seq: record.tokens for seq, record in plain.items()}
    proposer = Arbitrary(truth, engine.n_vocab, seed=model.threads * 100 + chunk)
    numbers = list(truth)
    passes = 0
    for begin in range(0, len(numbers), company + 1):
        plant = Plant(model, kv=kv)
        members = numbers[begin : begin + company + 1]
        group = [plant.open(n, prompts[n - 1], stop, answer, seeded(sampling, n)) for n in members]
        budget = FREE if begin % 2 else AnyBudget(begin)
        for seq, record in run(engine, limits, group, proposer, budget).items():
            assert record.tokens == plain[seq].tokens
            assert record.finish == plain[seq].finish
            assert record.logits == plain[seq].logits
            passes += record.passes
    answers = sum(len(record.tokens) for record in plain.values())
    chunks = sum(-(-len(prompt) // chunk) for prompt in prompts)
    assert passes - chunks < 0.8 * answers, "the proposals were used"


@pytest.mark.parametrize(("threads", "chunk", "company"), [(1, 64, 0), (2, 16, 2), (2, 1, 0), (1, 16, 2)])
def test_any_proposals_give_the_tokens_and_logits_of_plain_decoding(
    file: ModelFile,
    models: dict[int, Model],
    prompts: list[list[int]],
    plain: dict[int, Run],
    threads: int,
    chunk: int,
    company: int,
) -> None:
    check_speculation(models[threads], prompts, file.info.stop_tokens, plain, chunk, company, ANSWER)


@pytest.mark.parametrize(("threads", "chunk", "company"), [(2, 16, 2), (1, 64, 0)])
def test_any_proposals_give_the_tokens_and_logits_of_plain_decoding_within_int8(
    file: ModelFile,
    models: dict[int, Model],
    prompts: list[list[int]],
    plain_int8: dict[int, Run],
    threads: int,
    chunk: int,
    company: int,
) -> None:
    stop = file.info.stop_tokens
    check_speculation(models[threads], prompts, stop, plain_int8, chunk, company, ANSWER, "int8")


SAMPLED = (
    Sampling(temperature=0.8),
    Sampling(temperature=0.8, top_k=40, min_p=0.02, top_p=0.95, repetition_penalty=1.1),
)


@pytest.mark.parametrize("sampling", SAMPLED, ids=["temperature", "every warper"])
def test_any_proposals_give_the_tokens_of_plain_decoding_under_match(
    file: ModelFile, models: dict[int, Model], prompts: list[list[int]], sampling: Sampling
) -> None:
    """With seeds at T = 0.8: two threads, chunks and company against one thread, alone, token by token."""
    stop, some = file.info.stop_tokens, prompts[:9]
    plain = answer_plainly(models[1], some, stop, chunk=64, answer=16, sampling=sampling)
    assert len({tuple(record.tokens[:4]) for record in plain.values()}) > len(some) // 2
    check_speculation(models[2], some, stop, plain, chunk=16, company=2, answer=16, sampling=sampling)


def test_any_proposals_end_at_the_same_stop_string(
    file: ModelFile, models: dict[int, Model], prompts: list[list[int]], plain: dict[int, Run]
) -> None:
    """One that lies across a border of tokens: nothing behind it is said or enters the pool."""
    limits, token_bytes = Limits(7, 24, 16), file.tokenizer().token_bytes
    engine, plant = Recorder(models[2], limits, token_bytes=token_bytes), Plant(models[2])
    group, ends = [], {}
    for seq in (1, 3, 5, 7):
        texts = [token_bytes(token) for token in plain[seq].tokens]
        string = (texts[9][-2:] + texts[10][:2]).decode()
        ends[seq] = next(n for n in range(len(texts) + 1) if string.encode() in b"".join(texts[:n]))
        group.append(plant.open(seq, prompts[seq - 1], file.info.stop_tokens, strings=(string, "never")))
    proposer = Arbitrary({seq: record.tokens for seq, record in plain.items()}, engine.n_vocab, seed=2)
    found = run(engine, limits, group, proposer)
    for sequence in group:
        record, end = found[sequence.seq], ends[sequence.seq]
        assert (record.tokens, record.finish) == (plain[sequence.seq].tokens[:end], "stop")
        assert sequence.view.length == len(prompts[sequence.seq - 1]) + end - 1


def test_answers_depend_on_the_seed(
    file: ModelFile, models: dict[int, Model], prompts: list[list[int]], plain: dict[int, Run]
) -> None:
    """The same prompt with other seeds: other answers, and another one than the likeliest."""
    same = [prompts[0]] * 4
    found = answer_plainly(models[2], same, file.info.stop_tokens, 64, 12, sampling=SAMPLED[0])
    answers = {tuple(record.tokens[:12]) for record in found.values()}
    assert len(answers | {tuple(plain[1].tokens[:12])}) == 5


@pytest.mark.timeout(600)
def test_the_large_target_too_is_not_changed_by_any_proposals(data_dir: Path) -> None:
    """Qwen2.5-Coder-1.5B, with two threads, short chunks and company against one thread, alone."""
    file = open_model("qwen2.5-coder-1.5b", Paths(data=data_dir))
    prompts, stop = render(file), file.info.stop_tokens
    plain = answer_plainly(file.load(1), prompts, stop, chunk=64, answer=10)
    check_speculation(file.load(2), prompts, stop, plain, chunk=16, company=2, answer=10)


def test_a_sequence_that_cannot_go_on_fails_alone(
    file: ModelFile, models: dict[int, Model], prompts: list[list[int]], plain: dict[int, Run]
) -> None:
    """A token out of the vocabulary in one sequence: it fails, its neighbour answers as ever."""
    limits = Limits(7, 24, 16)
    engine = Engine(models[2], limits)
    plant = Plant(models[2])
    good = plant.open(1, prompts[0], file.info.stop_tokens)
    answer: list[int] = []
    while good.pending > 1 or not answer:
        (outcome,) = engine.run(compose([good], limits, FREE))
        assert isinstance(outcome, Outcome)
        answer += outcome.verdict.tokens
        good.advance(outcome.written, outcome.verdict, 0.0)
        acknowledge(good)
    bad = plant.open(2, [1, 2, engine.n_vocab, 3], file.info.stop_tokens)
    failed, outcome = engine.run(compose([good, bad], limits, FREE))
    assert isinstance(failed, Failure)
    assert failed.sequence is bad
    assert isinstance(outcome, Outcome)
    assert answer + outcome.verdict.tokens == plain[1].tokens[: len(answer) + 1]


def test_a_profile_prefix_is_only_computed(file: ModelFile, models: dict[int, Model]) -> None:
    """max_tokens 0: chunk by chunk into the pool, no token, and no end: context knows whether more comes."""
    limits = Limits(7, 24, 16)
    engine = Engine(models[1], limits)
    sequence = Plant(models[1]).open(1, list(range(100, 140)), (), max_tokens=0)
    written = []
    while sequence.runnable:
        (outcome,) = engine.run(compose([sequence], limits, FREE))
        assert isinstance(outcome, Outcome)
        assert outcome.verdict.tokens == []
        assert outcome.verdict.finish is None
        written.append(outcome.written)
        sequence.advance(outcome.written, outcome.verdict, 0.0)
        acknowledge(sequence)
    assert written == [16, 16, 8]
    assert sequence.view.length == 40


def test_a_third_commit_waits_for_the_first_to_be_confirmed(
    file: ModelFile, models: dict[int, Model], prompts: list[list[int]]
) -> None:
    limits = Limits(7, 24, 16)
    engine = Engine(models[1], limits)
    sequence = Plant(models[1]).open(1, prompts[0], file.info.stop_tokens)
    for _ in range(2):
        assert sequence.runnable
        (outcome,) = engine.run(compose([sequence], limits, FREE))
        assert isinstance(outcome, Outcome)
        sequence.advance(outcome.written, outcome.verdict, 0.0)
    assert not sequence.runnable
