"""Twenty alarms, answered plainly and with drafts: both must be the same, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

from services.verifier.batch import Limits
from services.verifier.sequences import Sequence
from shared.bus.messages.requests import GREEDY, Sampling
from shared.config.settings import KvFormat
from shared.model.open import ModelFile
from shared.native import Model
from tests.golden.proposers import FREE, AnyBudget, Arbitrary, Proposer
from tests.golden.verifier_plant import Plant, Record, Recorder, run

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
PLAIN = Proposer()


def render(file: ModelFile) -> list[list[int]]:
    """The alarms as prompts."""
    tokenizer = file.tokenizer()
    form = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    return [tokenizer.encode_special(form.format(alarm)) for alarm in ALARMS]


@dataclass(frozen=True)
class Questions:
    """What is asked, and how the answers are chosen: each sequence has a seed of its own."""

    prompts: list[list[int]]
    stop: tuple[int, ...]
    answer: int  # tokens at most
    sampling: Sampling = GREEDY
    kv: KvFormat = "f16"

    def chunks(self, chunk: int) -> int:
        return sum(-(-len(prompt) // chunk) for prompt in self.prompts)


def answers(
    model: Model, questions: Questions, limits: Limits, company: int = 0, proposer: Proposer = PLAIN
) -> dict[int, Record]:
    """Groups of `company` + 1 sequences, one group after the other, numbered from 1. Every other group takes
    all the drafts that it has room for, those between some of them."""
    engine = Recorder(model, limits, questions.kv)
    numbers = range(1, len(questions.prompts) + 1)
    records: dict[int, Record] = {}
    for begin in range(0, len(numbers), company + 1):
        plant = Plant([model, *proposer.models], questions.kv, order=limits.nodes + company)
        group = [_open(plant, questions, n) for n in numbers[begin : begin + company + 1]]
        proposer.begin(plant.pool, plant.snapshots)
        records |= run(engine, limits, group, proposer, FREE if begin % 2 else AnyBudget(begin))
    return records


def _open(plant: Plant, questions: Questions, seq: int) -> Sequence:
    sampling = questions.sampling
    if sampling.temperature:
        sampling = sampling.model_copy(update={"seed": seq})
    return plant.open(seq, questions.prompts[seq - 1], questions.stop, questions.answer, sampling)


def answer_plainly(model: Model, questions: Questions, chunk: int) -> dict[int, Record]:
    """Every prompt alone, token by token."""
    return answers(model, questions, Limits(0, 1, chunk))


def check_drafts(
    model: Model,
    questions: Questions,
    plain: dict[int, Record],
    chunk: int,
    company: int,
    proposer: Proposer | None = None,
) -> None:
    """With company and drafts (None: arbitrary ones) the answers are the plain ones, and drafts are used."""
    if proposer is None:
        truth = {seq: record.tokens for seq, record in plain.items()}
        proposer = Arbitrary(truth, model.n_vocab, seed=model.threads * 100 + chunk)
    found = answers(model, questions, Limits(7, 24, chunk), company, proposer)
    check_same(found, plain)
    passes = sum(record.passes for record in found.values())
    tokens = sum(len(record.tokens) for record in plain.values())
    assert passes - questions.chunks(chunk) < 0.8 * tokens, "the drafts were not used"


def check_same(found: dict[int, Record], plain: dict[int, Record]) -> None:
    """Tokens, ends, and the logits of every token that was accepted."""
    assert found.keys() == plain.keys()
    for seq, record in found.items():
        assert record.tokens == plain[seq].tokens
        assert record.finish == plain[seq].finish
        assert record.logits == plain[seq].logits
