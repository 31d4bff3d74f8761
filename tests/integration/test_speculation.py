"""Real context, verifier and draft: the draft changes how fast an answer comes, never the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.draft.history_file import header, parse
from shared.bus.messages.requests import Sampling
from shared.config.settings import Paths
from shared.model.open import open_model
from tests.integration.speculation_plant import ROOT, SpeculationPlant
from tests.integration.waiting import wait_for

SYSTEM = "<|im_start|>system\nYou explain plant alarms briefly and name the next step.<|im_end|>\n"
ALARM = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
TEXTS = (
    "CNC-3 E104: spindle temperature 92 °C, limit 85 °C. Coolant flow normal.",
    "一号锅炉给水液位低：31%，下限35%，二号泵运行中。",
    "Conveyor K7 stopped: motor overload relay tripped twice. Count from 1 to 40 and repeat the alarm.",
)
LONG = 160
SAMPLED = Sampling(temperature=0.8, top_p=0.95, repetition_penalty=1.1, seed=2026)
RATIO = Sampling(temperature=0.8, top_k=20, acceptance="ratio")


@pytest.fixture(scope="module")
def prefix() -> list[int]:
    return open_model("smollm2-135m", Paths(data=ROOT / ".ringline")).tokenizer().encode_special(SYSTEM)


@pytest.fixture(scope="module")
def prompts(prefix: list[int]) -> list[list[int]]:
    tokenizer = open_model("smollm2-135m", Paths(data=ROOT / ".ringline")).tokenizer()
    return [prefix + tokenizer.encode_special(ALARM.format(text)) for text in TEXTS]


@pytest.fixture(scope="module")
def plain(
    tmp_path_factory: pytest.TempPathFactory, prefix: list[int], prompts: list[list[int]]
) -> list[list[int]]:
    """The answers without any draft, and a sampled one to the first prompt."""
    with SpeculationPlant(tmp_path_factory.mktemp("plain")) as plant:
        plant.wait_welcome()
        plant.register(prefix)
        for i, prompt in enumerate(prompts):
            plant.submit(str(i), prompt, LONG)
            plant.wait_finished(str(i))
        plant.submit("sampled", prompts[0], LONG, sampling=SAMPLED)
        plant.wait_finished("sampled")
        return [answer.tokens for answer in plant.answers.values()]


def accepted(plant: SpeculationPlant, name: str) -> int:
    """Draft tokens of a finished answer that the target accepted."""
    finished = plant.answers[name].finished
    assert finished is not None
    return finished.accepted


@pytest.mark.parametrize("sources", [("retrieval",), ("cpu",), ("retrieval", "cpu")])
def test_answers_are_the_same_with_any_draft(
    tmp_path: Path,
    prefix: list[int],
    prompts: list[list[int]],
    plain: list[list[int]],
    sources: tuple[str, ...],
) -> None:
    """Several sequences at once; retrieval is fast enough to be used, the model may or may not be."""
    with SpeculationPlant(tmp_path, threads=1, sources=sources) as plant:
        plant.wait_welcome()
        plant.wait_joined("verifier", "draft")
        plant.register(prefix)
        names = [str(i) for i in range(len(prompts))]
        for name, prompt in zip(names, prompts, strict=True):
            plant.submit(name, prompt, LONG)
        plant.wait_finished(*names)
        assert [plant.answers[name].tokens for name in names] == plain[: len(names)]
        assert sum(accepted(plant, name) for name in names) > 0 or "retrieval" not in sources, plant.log()


def test_what_the_draft_model_proposes_is_used(
    tmp_path: Path, prefix: list[int], prompts: list[list[int]], plain: list[list[int]]
) -> None:
    """Target and draft are the same model here: the verifier is held up so that the draft gets ahead. Of one
    answer it draws what the target accepts by `ratio`."""
    with SpeculationPlant(tmp_path, threads=1, sources=("cpu",)) as plant:
        plant.wait_welcome()
        plant.wait_joined("verifier", "draft")
        plant.register(prefix)
        plant.submit("a", prompts[0], LONG)
        plant.submit("ratio", prompts[1], LONG, sampling=RATIO)
        for tokens in (5, 20, 35):
            plant.wait_tokens("a", tokens)
            plant.pause("verifier", 1.5)
        plant.wait_finished("a", "ratio")
        assert plant.answers["a"].tokens == plain[0]
        assert accepted(plant, "a") > 0, plant.log()
        assert accepted(plant, "ratio") > 0, plant.log()
        assert "proposal dropped" not in plant.log()


def test_a_draft_killed_while_an_answer_streams_changes_nothing_and_is_used_again(
    tmp_path: Path, prefix: list[int], prompts: list[list[int]], plain: list[list[int]]
) -> None:
    with SpeculationPlant(tmp_path, threads=1, sources=("retrieval", "cpu")) as plant:
        plant.wait_welcome()
        plant.wait_joined("verifier", "draft")
        plant.register(prefix)
        plant.submit("first", prompts[0], LONG)
        plant.wait_tokens("first", 10)
        plant.kill("draft")
        plant.wait_finished("first")
        assert plant.answers["first"].tokens == plain[0]
        plant.start("draft")
        plant.wait_joined("draft")
        plant.submit("second", prompts[2], LONG)
        plant.wait_finished("second")
        assert plant.answers["second"].tokens == plain[2]
        assert accepted(plant, "second") > 0


def test_finished_answers_are_drafted_from_and_come_back_after_draft_was_killed(
    tmp_path: Path, prefix: list[int], prompts: list[list[int]], plain: list[list[int]]
) -> None:
    """How much drafts are used depends on the machine's load: the answer is asked for a few times."""
    with SpeculationPlant(tmp_path, threads=1, sources=("retrieval",)) as plant:
        plant.wait_welcome()
        plant.wait_joined("verifier", "draft")
        plant.register(prefix)
        passes = []
        for name in ("first", "second", "third", "fourth"):
            plant.submit(name, prompts[1], LONG)
            plant.wait_finished(name)
            finished = plant.answers[name].finished
            assert finished is not None
            passes.append(finished.passes)
        assert min(passes[1:]) < passes[0] / 2, passes
        wait_for(lambda: answers_on_disk(tmp_path / "data" / "draft") == 4, "answers on disk", plant.log)
        plant.kill("draft")
        plant.start("draft")
        plant.wait_joined("draft")
        plant.submit("later", prompts[1], LONG)
        plant.wait_finished("later")
        assert all(answer.tokens == plain[1] for answer in plant.answers.values())
        assert '"answers": 4, "event": "history"' in plant.log()


def answers_on_disk(directory: Path) -> int:
    """Whole ones; draft writes every few seconds."""
    files = [file.read_bytes() for file in directory.glob("history-*")]
    return sum(len(parse(raw, raw[: len(header(""))]).answers) for raw in files)


def test_a_verifier_killed_while_an_answer_streams_goes_on_with_the_same_answer(
    tmp_path: Path, prefix: list[int], prompts: list[list[int]], plain: list[list[int]]
) -> None:
    with SpeculationPlant(tmp_path, threads=1, sources=("retrieval",)) as plant:
        plant.wait_welcome()
        plant.register(prefix)
        plant.submit("a", prompts[0], LONG)
        plant.submit("b", prompts[1], LONG)
        plant.submit("sampled", prompts[0], LONG, sampling=SAMPLED)
        for tokens in (5, 40):
            plant.wait_tokens("a", tokens)
            plant.kill("verifier")
            plant.start("verifier")
        plant.wait_finished("a", "b", "sampled")
        assert plant.answers["a"].tokens == plain[0]
        assert plant.answers["b"].tokens == plain[1]
        assert plant.answers["sampled"].tokens == plain[-1] != plain[0]


def test_a_context_killed_while_an_answer_streams_goes_on_with_the_same_answer(
    tmp_path: Path, prefix: list[int], prompts: list[list[int]], plain: list[list[int]]
) -> None:
    """Verifier and draft stay, drop their sequences and take them up from the snapshots."""
    with SpeculationPlant(tmp_path, threads=1, sources=("retrieval", "cpu")) as plant:
        plant.wait_welcome()
        plant.register(prefix)
        plant.submit("a", prompts[0], LONG)
        plant.submit("sampled", prompts[0], LONG, sampling=SAMPLED)
        plant.wait_tokens("sampled", 20)
        plant.kill("context")
        plant.start("context")
        plant.wait_finished("a", "sampled")
        assert plant.answers["a"].tokens == plain[0]
        assert plant.answers["sampled"].tokens == plain[-1]


def test_a_draft_of_another_vocabulary_leaves_retrieval_and_says_so(
    tmp_path: Path, prefix: list[int], prompts: list[list[int]], plain: list[list[int]]
) -> None:
    with SpeculationPlant(tmp_path, sources=("retrieval", "cpu"), draft_model="qwen2.5-coder-0.5b") as plant:
        plant.wait_welcome()
        plant.wait_joined("verifier", "draft")
        plant.register(prefix)
        plant.submit("a", prompts[2], LONG)
        plant.wait_finished("a")
        assert plant.answers["a"].tokens == plain[2]
        assert "has another vocabulary than models.target" in plant.log()
        assert accepted(plant, "a") > 0
