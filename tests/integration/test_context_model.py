"""Context and verifier with a real model: sharing, forks, preemption and wraps never change an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.settings import Paths
from shared.model.open import open_model
from shared.model.tokenizer import Tokenizer
from tests.integration.speculation_plant import ROOT, SpeculationPlant

SYSTEM = "<|im_start|>system\nYou explain plant alarms briefly and name the next step.<|im_end|>\n"
LINE = "12:{:02d}:{:02d} CNC-{} E{}: spindle temperature {} °C, coolant {} l/min.\n"
QUESTION = "<|im_start|>user\nWhat happened on this machine?<|im_end|>\n<|im_start|>assistant\n"
WINDOW = 256


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_model("smollm2-135m", Paths(data=ROOT / ".ringline")).tokenizer()


@pytest.fixture(scope="module")
def prefix(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode_special(SYSTEM)


def log_lines(tokenizer: Tokenizer, first: int, count: int) -> list[int]:
    """Lines of a plant's log, each different."""
    numbers = range(first, first + count)
    text = "".join(LINE.format(i // 60, i % 60, i % 7, 100 + i % 9, 60 + i % 31, 4 + i % 5) for i in numbers)
    return tokenizer.encode(text)


def answers_alone(directory: Path, prefix: list[int], prompts: list[list[int]], n: int) -> list[list[int]]:
    """Each prompt in a plant that has seen nothing else."""
    found = []
    for i, prompt in enumerate(prompts):
        (directory / str(i)).mkdir()
        with SpeculationPlant(directory / str(i)) as plant:
            plant.wait_welcome()
            plant.register(prefix, WINDOW)
            plant.submit("a", prompt, n)
            plant.wait_finished("a")
            found.append(plant.answers["a"].tokens)
    return found


def test_an_answer_on_cached_blocks_is_the_answer_without_them(
    tmp_path: Path, tokenizer: Tokenizer, prefix: list[int]
) -> None:
    prompt = prefix + log_lines(tokenizer, 0, 4) + tokenizer.encode_special(QUESTION)
    other = prompt[:-3] + tokenizer.encode(" Why?")
    alone = answers_alone(tmp_path, prefix, [prompt, other], 60)
    with SpeculationPlant(tmp_path) as plant:
        plant.wait_welcome()
        plant.register(prefix, WINDOW)
        for name, tokens in (("first", prompt), ("again", prompt), ("other", other)):
            plant.submit(name, tokens, 60)
            plant.wait_finished(name)
        cached = [plant.answers[name].finished.cached_tokens for name in plant.answers]  # type: ignore[union-attr]
        assert cached[0] == len(prefix) < cached[1]
        assert cached[1] >= len(prompt) - 16
        assert cached[2] > len(prefix) + 32
        assert [plant.answers[name].tokens for name in plant.answers] == [alone[0], alone[0], alone[1]]
        assert plant.pool().cache.hit_blocks > 0


def test_a_wrap_over_shared_blocks_leaves_the_other_sequence_alone(
    tmp_path: Path, tokenizer: Tokenizer, prefix: list[int]
) -> None:
    """Two answers on the same cached prompt run over the ring's end at the same time."""
    prompt = prefix + log_lines(tokenizer, 0, 4) + tokenizer.encode_special(QUESTION)
    (alone,) = answers_alone(tmp_path, prefix, [prompt], 600)
    with SpeculationPlant(tmp_path) as plant:
        plant.wait_welcome()
        plant.register(prefix, WINDOW)
        plant.submit("warm", prompt, 4)
        plant.wait_finished("warm")
        plant.submit("a", prompt, 600)
        plant.wait_tokens("a", 40)
        plant.submit("b", prompt, 600)
        plant.wait_finished("a", "b")
        assert plant.answers["a"].tokens == alone
        assert plant.answers["b"].tokens == alone
        assert plant.pool().cache.replaced_blocks > 0


@pytest.mark.parametrize("sources", [(), ("retrieval", "cpu")], ids=["plain", "drafted"])
def test_a_question_on_a_stream_is_the_plain_request_and_leaves_the_stream_alone(
    tmp_path: Path, tokenizer: Tokenizer, prefix: list[int], sources: tuple[str, ...]
) -> None:
    lines = [log_lines(tokenizer, i, 3) for i in range(0, 6, 3)]
    question = tokenizer.encode_special(QUESTION)
    prompts = [prefix + lines[0] + question, prefix + lines[0] + lines[1] + question]
    alone = answers_alone(tmp_path, prefix, prompts, 50)
    with SpeculationPlant(tmp_path, sources=sources) as plant:
        plant.wait_welcome()
        plant.wait_joined("verifier", *(["draft"] if sources else []))
        plant.register(prefix, WINDOW)
        plant.append("line", 1, lines[0])
        plant.submit("one", prefix + question, 50, stream="line")
        plant.wait_tokens("one", 5)
        plant.append("line", 2, lines[1])
        plant.submit("two", prefix + question, 50, stream="line")
        plant.wait_finished("one", "two")
        assert plant.answers["one"].tokens == alone[0]
        assert plant.answers["two"].tokens == alone[1]
        assert plant.wait_computed("line").known == len(prompts[1]) - len(question)
        assert "not drafted" not in plant.log()


def test_a_preempted_request_goes_on_to_the_undisturbed_answer(
    tmp_path: Path, tokenizer: Tokenizer, prefix: list[int]
) -> None:
    question = tokenizer.encode_special(QUESTION)
    prompts = [prefix + log_lines(tokenizer, i, 3) + question for i in (0, 20)]
    alone = answers_alone(tmp_path, prefix, prompts, 400)
    with SpeculationPlant(tmp_path, max_sequences=1) as plant:
        plant.wait_welcome()
        plant.register(prefix, WINDOW)
        plant.submit("low", prompts[0], 400)
        plant.wait_tokens("low", 300)
        plant.submit("critical", prompts[1], 400, severity=3)
        plant.wait_finished("critical", "low")
        assert "preempted" in plant.log()
        assert plant.answers["low"].tokens == alone[0]
        assert plant.answers["critical"].tokens == alone[1]


@pytest.mark.parametrize("victim", ["context", "verifier"])
def test_a_stream_over_several_windows_goes_on_after_kill_9_and_answers_the_same(
    tmp_path: Path, tokenizer: Tokenizer, prefix: list[int], victim: str
) -> None:
    """Nothing is computed again: what was in the pool is what the answer stands on."""
    question = prefix + tokenizer.encode_special(QUESTION)
    lines = [log_lines(tokenizer, 4 * i, 4) for i in range(12)]
    said = []
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
        with SpeculationPlant(tmp_path / name) as plant:
            plant.wait_welcome()
            plant.register(prefix, WINDOW)
            for serial, tokens in enumerate(lines):
                plant.append("line", serial, tokens)
                if name == "killed" and serial == 9:
                    before = plant.wait_computed("line")
                    plant.kill(victim)
                    plant.start(victim)
                    plant.append("line", serial, tokens)
                    after = plant.wait_computed("line")
                    assert (after.kv_len, after.seq) == (before.kv_len, before.seq)
            state = plant.wait_computed("line")
            assert state.known > 3 * WINDOW
            plant.submit("q", question, 60, stream="line")
            plant.wait_finished("q")
            said.append(plant.answers["q"].tokens)
    assert len(said[0]) == 60
    assert said[0] == said[1]
