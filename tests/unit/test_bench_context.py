"""bench.context: the text, the tenths and slopes, and one short run of each experiment."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest

from bench import blocks, budget, endless, endless_plant, figures, sharing
from bench.plant_log import lines, log_tokens
from bench.reader import CHUNK
from bench.series import Memory, Series, memory_mb, slope, summary, tenths
from services.gateway.alarm import parse_alarm
from services.gateway.prompt import Prompter
from services.launcher.demo_alarms import read_alarms
from shared.config.errors import RinglineError
from shared.config.settings import Paths, Profile
from shared.model.open import ModelFile, open_model
from shared.native import Model

OPTIONS = argparse.Namespace(tokens=1000, plain=640, full=640, window=128, seed=1)


@pytest.fixture(scope="module")
def file(smollm2: Path, data_dir: Path) -> ModelFile:
    return open_model(str(smollm2), Paths(data=data_dir))


@pytest.fixture(scope="module")
def model(file: ModelFile) -> Model:
    return file.load(2)


def series_of(nll: list[float], pss: list[float], tokens: int = 1000) -> Series:
    series = Series(len(nll), tokens)
    for loss, memory in zip(nll, pss, strict=True):
        series.add(loss, 2.0, Memory(memory + 1, memory, memory - 1))
    return series


def test_a_seed_names_one_log_and_another_seed_another() -> None:
    first, again, other = (list(itertools.islice(lines(seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_log_does_not_drift() -> None:
    """Early and late parts have the same machines, about as often, and lines of the same length."""
    some = list(itertools.islice(lines(3), 20_000))
    early, late = some[:10_000], some[10_000:]

    def machines(part: list[str]) -> dict[str, float]:
        names = [line.split()[1] for line in part]
        return {name: names.count(name) / len(names) for name in set(names)}

    assert machines(late) == pytest.approx(machines(early), abs=0.02)
    assert sum(map(len, late)) == pytest.approx(sum(map(len, early)), rel=0.02)


def test_the_time_of_day_comes_round() -> None:
    hours = [line[:2] for line in itertools.islice(lines(4), 5000)]
    assert set(hours) == {f"{hour:02}" for hour in range(24)}


def test_log_tokens_are_those_of_the_text_in_front() -> None:
    tokens = log_tokens(lambda text: list(text.encode()), 1000, seed=5)
    assert bytes(tokens.tolist()).decode() == "".join(itertools.islice(lines(5), 60))[:1000]


def test_a_tenth_has_the_perplexity_of_its_mean_loss_and_ends_where_the_next_begins() -> None:
    parts = tenths(series_of([0.0, 2.0] * 10, [5.0] * 20))
    assert [part.end for part in parts] == [2000 * n for n in range(1, 11)]
    assert [part.ppl for part in parts] == pytest.approx([math.e] * 10)
    assert parts[0].ms_per_token == pytest.approx(2.0)
    assert (parts[0].rss_mb, parts[0].pss_mb) == (6.0, 5.0)


def test_fewer_than_ten_samples_are_not_ten_parts() -> None:
    with pytest.raises(ValueError, match="9 samples"):
        tenths(series_of([1.0] * 9, [1.0] * 9))


def test_slope_of_a_line_with_even_noise_is_the_lines() -> None:
    x = np.arange(10.0)
    assert slope(x, 3 * x - 7) == pytest.approx(3.0)
    assert slope([0, 1, 2, 3], [1, -1, -1, 1]) == pytest.approx(0.0)


def test_the_summary_leaves_the_first_tenth_out() -> None:
    """Memory that only fills once is no growth; a steady MB per 1,000 tokens is 100 MB per 100,000."""
    level = summary(series_of([9.0] + [1.0] * 9, [0.0] + [50.0] * 9))
    assert level["pss_mb_per_100k_tokens"] == pytest.approx(0.0)
    assert level["ppl_last_to_second"] == pytest.approx(1.0)
    growing = summary(series_of([1.0] * 10, [float(n) for n in range(10)]))
    assert growing["pss_mb_per_100k_tokens"] == pytest.approx(100.0)


def test_spans_of_a_figure_cover_every_sample_once_and_grow() -> None:
    ends, means = figures.spans(series_of([float(n) for n in range(100)], [0.0] * 100))
    assert ends[-1] == 100_000
    lengths = np.diff(ends, prepend=0.0) / 1000
    assert (lengths * means).sum() == pytest.approx(sum(range(100)))
    assert len(ends) < 15


def test_a_process_that_grows_is_seen_and_one_that_fills_once_is_not() -> None:
    tokens = list(range(0, 200_000, 2000))
    filled = [Memory(5.0, 5.0, 1.0 if n < 6000 else 4.0) for n in tokens]
    growing = [Memory(5.0, 5.0, n / 1e5) for n in tokens]
    assert endless_plant.growth(tokens, filled)["anon_mb_per_100k_tokens"] == pytest.approx(0.0)
    assert endless_plant.growth(tokens, growing)["anon_mb_per_100k_tokens"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"killed": 1}, "killed"),
        ({"restarted": ["verifier"]}, "restarted"),
        ({"growth_mb": 20.0}, "grown"),
        ({"answered": 8}, "neither an answer nor a refusal"),
        ({"at_once": 7}, "only 7"),
    ],
)
def test_a_budget_that_is_not_kept_is_a_problem(change: dict[str, object], said: str) -> None:
    good: dict[str, object] = {
        "killed": 0,
        "restarted": [],
        "memory_errors": 0,
        "growth_mb": 1.0,
        "answered": 9,
        "refused_with_reason": 1,
        "asked": 10,
        "at_once": 8,
    }
    assert budget.problems(good) == []
    (problem,) = budget.problems({**good, **change})
    assert said in problem


def test_memory_is_read_in_mb() -> None:
    text = (
        "5000-6000 ---p 00000000 00:00 0 [rollup]\nRss:  2048 kB\nPss:  1024 kB\nPss_Dirty:  9 kB\n"
        "Pss_Anon:  512 kB\n"
    )
    assert memory_mb(text) == (2.0, 1.0, 0.5)


def test_the_scorer_is_the_negative_log_of_the_softmax() -> None:
    logits = np.random.default_rng(1).normal(size=(3, 7)).astype(np.float32)
    targets = np.array([0, 6, 3], np.int32)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -np.log(shares[np.arange(3), targets]).sum()
    assert endless.Scorer(7).nll(logits, targets) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("length", "whole"), [(CHUNK, 0), (CHUNK + 1, 1), (3 * CHUNK, 2), (3 * CHUNK + 1, 3)]
)
def test_a_chunk_is_read_when_its_last_prediction_can_be_scored(length: int, whole: int) -> None:
    assert len(list(endless.chunks(length))) == whole


def test_runs_too_short_for_ten_parts_are_refused() -> None:
    short = argparse.Namespace(**{**vars(OPTIONS), "full": 639})
    with pytest.raises(RinglineError, match="640 or more"):
        endless.check_options(short)


def test_the_programs_lines_become_figures() -> None:
    assert blocks.read("allocate_ns 1.5\nfree_ns 2\n") == {"allocate_ns": 1.5, "free_ns": 2.0}


def test_the_program_compiles_against_the_core() -> None:
    compiler = [os.environ.get("CXX", "c++"), *blocks.FLAGS, "-fsyntax-only", str(blocks.SOURCES[0])]
    subprocess.run(compiler, check=True, timeout=60)


def test_a_missing_compiler_is_named(file: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RinglineError, match="no-such-compiler: set CXX"):
        blocks.run(file.info)


def test_a_short_run_reads_three_ways(file: ModelFile, model: Model) -> None:
    """2,000 tokens and more in all. What is read in the beginning is the same in every way of reading."""
    series = endless.run(file, model, OPTIONS)
    assert {name: one.ends[-1] for name, one in series.items()} == {"sink": 960, "window": 640, "full": 640}
    assert all(np.isfinite(one.nll).all() for one in series.values())
    assert series["sink"].nll[0] == pytest.approx(series["full"].nll[0], rel=1e-4)
    assert "sink: last tenth to second" in endless.table(endless.report(series))


def test_eight_sequences_hold_a_common_prefix_once(file: ModelFile) -> None:
    """16 blocks of prefix, and 9 of each sequence's own for alarm and answer of the demonstration: less than
    half of what they hold without sharing. Half is reached at 12 blocks, 192 tokens."""
    own = -(-(sharing.ALARM + sharing.ANSWER) // 16)
    shared, apart = (sharing.blocks_used(file.info, profiles=n) for n in (1, 8))
    assert (shared, apart) == (16 + 8 * own, 8 * (16 + own))
    assert shared < apart / 2
    longer = 192 - sharing.ALARM
    assert sharing.blocks_used(file.info, 1, longer) * 2 == sharing.blocks_used(file.info, 8, longer)


def test_the_alarm_of_the_sharing_experiment_is_as_long_as_the_demonstrations(data_dir: Path) -> None:
    """Behind their prefixes, in tokens of the reference target's vocabulary."""
    prompter = Prompter(open_model("qwen2.5-coder-0.5b", Paths(data=data_dir)))
    demo = Path(sharing.__file__).parents[1] / "deploy" / "demo"
    written = (demo / "ringline.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(written[written.index("[[profiles]]") :])["profiles"]
    profiles = {table["name"]: Profile.model_validate(table) for table in tables}
    lengths = []
    for alarm in read_alarms(demo / "alarms.jsonl").alarms:
        profile = profiles[alarm.topic.split("/")[1]]
        prompt = prompter.prompt(profile, parse_alarm(alarm.payload, 1 << 16), profile.language == "en")
        lengths.append(len(prompt.tokens) - len(prompter.prefix(profile)))
    assert round(sum(lengths) / len(lengths)) == sharing.ALARM


def test_a_warm_prefix_is_not_read_again(model: Model) -> None:
    found = sharing.first_tokens(model, rounds=1)
    assert found["first_token_ratio"] > 1.0
