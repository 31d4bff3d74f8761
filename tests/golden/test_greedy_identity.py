"""Speculation changes nothing: with any proposals, tokens and logits are plain decoding's, bit for bit.

The verifier's own engine runs SmolLM2 over twenty alarms. Proposals are arbitrary: the true continuation, the
true one with a wrong turn, noise, old ones. Everything is compared with one token at a time on one thread.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from services.verifier.batch import Limits, compose
from services.verifier.engine import Engine, Failure, Outcome
from shared.bus.messages.requests import Sampling
from shared.config.settings import Paths
from shared.model.open import ModelFile, open_model
from shared.native import Model
from tests.golden.identity import Questions, answer_plainly, check_drafts, render
from tests.golden.proposers import FREE, Arbitrary
from tests.golden.verifier_plant import Plant, Record, Recorder, acknowledge, run

ANSWER = 24


@pytest.fixture(scope="module")
def file(data_dir: Path) -> ModelFile:
    return open_model("smollm2-135m", Paths(data=data_dir))


@pytest.fixture(scope="module")
def models(file: ModelFile) -> dict[int, Model]:
    return {threads: file.load(threads) for threads in (1, 2)}


@pytest.fixture(scope="module")
def questions(file: ModelFile) -> Questions:
    return Questions(render(file), file.info.stop_tokens, ANSWER)


@pytest.fixture(scope="module")
def plain(models: dict[int, Model], questions: Questions) -> dict[int, Record]:
    """Every prompt alone, token by token, one thread, chunks of one."""
    return answer_plainly(models[1], questions, chunk=1)


@pytest.mark.parametrize(("threads", "chunk", "company"), [(1, 64, 0), (2, 16, 2), (2, 1, 0), (1, 16, 2)])
def test_any_proposals_give_the_tokens_and_logits_of_plain_decoding(
    models: dict[int, Model],
    questions: Questions,
    plain: dict[int, Record],
    threads: int,
    chunk: int,
    company: int,
) -> None:
    check_drafts(models[threads], questions, plain, chunk, company)


def test_any_proposals_give_the_tokens_and_logits_of_plain_decoding_within_int8(
    models: dict[int, Model], questions: Questions
) -> None:
    questions = replace(questions, kv="int8")
    plain = answer_plainly(models[1], questions, chunk=1)
    for threads, chunk, company in [(2, 16, 2), (1, 64, 0)]:
        check_drafts(models[threads], questions, plain, chunk, company)


SAMPLED = (
    Sampling(temperature=0.8),
    Sampling(temperature=0.8, top_k=40, min_p=0.02, top_p=0.95, repetition_penalty=1.1),
)


@pytest.mark.parametrize("sampling", SAMPLED, ids=["temperature", "every warper"])
def test_any_proposals_give_the_tokens_of_plain_decoding_under_match(
    models: dict[int, Model], questions: Questions, sampling: Sampling
) -> None:
    """With seeds at T = 0.8: two threads, chunks and company against one thread, alone, token by token."""
    some = replace(questions, prompts=questions.prompts[:9], answer=16, sampling=sampling)
    plain = answer_plainly(models[1], some, chunk=64)
    assert len({tuple(record.tokens[:4]) for record in plain.values()}) > len(some.prompts) // 2
    check_drafts(models[2], some, plain, chunk=16, company=2)


def test_any_proposals_end_at_the_same_stop_string(
    file: ModelFile, models: dict[int, Model], questions: Questions, plain: dict[int, Record]
) -> None:
    """One that lies across a border of tokens: nothing behind it is said or enters the pool."""
    limits, token_bytes = Limits(7, 24, 16), file.tokenizer().token_bytes
    engine, plant = Recorder(models[2], limits, token_bytes=token_bytes), Plant([models[2]])
    group, ends = [], {}
    for seq in (1, 3, 5, 7):
        prompt = questions.prompts[seq - 1]
        texts = [token_bytes(token) for token in plain[seq].tokens]
        string = (texts[9][-2:] + texts[10][:2]).decode()
        ends[seq] = next(n for n in range(len(texts) + 1) if string.encode() in b"".join(texts[:n]))
        group.append(plant.open(seq, prompt, questions.stop, ANSWER, strings=(string, "never")))
    proposer = Arbitrary({seq: record.tokens for seq, record in plain.items()}, engine.n_vocab, seed=2)
    found = run(engine, limits, group, proposer, FREE)
    for sequence in group:
        record, end = found[sequence.seq], ends[sequence.seq]
        assert (record.tokens, record.finish) == (plain[sequence.seq].tokens[:end], "stop")
        assert sequence.view.length == len(questions.prompts[sequence.seq - 1]) + end - 1


def test_answers_depend_on_the_seed(
    models: dict[int, Model], questions: Questions, plain: dict[int, Record]
) -> None:
    """The same prompt with other seeds: other answers, and another one than the likeliest."""
    same = replace(questions, prompts=questions.prompts[:1] * 4, answer=12, sampling=SAMPLED[0])
    found = answer_plainly(models[2], same, chunk=64)
    answers = {tuple(record.tokens[:12]) for record in found.values()}
    assert len(answers | {tuple(plain[1].tokens[:12])}) == 5


@pytest.mark.timeout(600)
def test_the_large_target_too_is_not_changed_by_any_proposals(data_dir: Path) -> None:
    """Qwen2.5-Coder-1.5B, with two threads, short chunks and company against one thread, alone."""
    file = open_model("qwen2.5-coder-1.5b", Paths(data=data_dir))
    questions = Questions(render(file), file.info.stop_tokens, answer=10)
    plain = answer_plainly(file.load(1), questions, chunk=64)
    check_drafts(file.load(2), questions, plain, chunk=16, company=2)


def test_a_sequence_that_cannot_go_on_fails_alone(
    models: dict[int, Model], questions: Questions, plain: dict[int, Record]
) -> None:
    """A token out of the vocabulary in one sequence: it fails, its neighbour answers as ever."""
    limits = Limits(7, 24, 16)
    engine = Engine(models[2], limits)
    plant = Plant([models[2]])
    good = plant.open(1, questions.prompts[0], questions.stop, ANSWER)
    answer: list[int] = []
    while good.pending > 1 or not answer:
        (outcome,) = engine.run(compose([good], limits, FREE))
        assert isinstance(outcome, Outcome)
        answer += outcome.verdict.tokens
        good.advance(outcome.written, outcome.verdict, 0.0)
        acknowledge(good)
    bad = plant.open(2, [1, 2, engine.n_vocab, 3], questions.stop, ANSWER)
    failed, outcome = engine.run(compose([good, bad], limits, FREE))
    assert isinstance(failed, Failure)
    assert failed.sequence is bad
    assert isinstance(outcome, Outcome)
    assert answer + outcome.verdict.tokens == plain[1].tokens[: len(answer) + 1]


def test_a_profile_prefix_is_only_computed(models: dict[int, Model]) -> None:
    """max_tokens 0: chunk by chunk into the pool, no token, and no end: context knows whether more comes."""
    limits = Limits(7, 24, 16)
    engine = Engine(models[1], limits)
    sequence = Plant([models[1]]).open(1, list(range(100, 140)), (), max_tokens=0)
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
    models: dict[int, Model], questions: Questions
) -> None:
    limits = Limits(7, 24, 16)
    engine = Engine(models[1], limits)
    sequence = Plant([models[1]]).open(1, questions.prompts[0], questions.stop, ANSWER)
    for _ in range(2):
        assert sequence.runnable
        (outcome,) = engine.run(compose([sequence], limits, FREE))
        assert isinstance(outcome, Outcome)
        sequence.advance(outcome.written, outcome.verdict, 0.0)
    assert not sequence.runnable
