"""`make test-kills`: kill -9 at random instants, with requests, streams and questions on them under way.

RINGLINE_KILLS sets how often each victim is killed (50), RINGLINE_KILLS_SEED the instants. The disturbed
plant comes first, for as many rounds as the kills take; an undisturbed one then gets the same rounds.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from shared.config.settings import Paths
from shared.model.open import open_model
from shared.model.tokenizer import Tokenizer
from tests.integration.speculation_plant import ROOT, SpeculationPlant

SYSTEM = "<|im_start|>system\nYou explain plant alarms briefly and name the next step.<|im_end|>\n"
LINE = "12:{:02d}:{:02d} CNC-{} E{}: spindle temperature {} °C, coolant {} l/min.\n"
ALARM = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
STREAMS = ("line 1", "line 2")
WINDOW = 256
KILLS = int(os.environ.get("RINGLINE_KILLS", "50"))
SEED = int(os.environ.get("RINGLINE_KILLS_SEED", "1"))
SHORTEST_S, LONGEST_S = 0.1, 3.0  # between two kills: in the middle of a start, of a prompt, of an answer
IDLE_S = 12.0  # context looks at its pool when nothing has happened for ten seconds


class Rounds:
    """The same work for every plant: each round adds to both streams, asks on them, and asks plainly."""

    def __init__(self, plant: SpeculationPlant, tokenizer: Tokenizer) -> None:
        self._plant = plant
        self._tokenizer = tokenizer
        self._prefix = tokenizer.encode_special(SYSTEM)
        self.done = 0

    def begin(self) -> None:
        self._plant.wait_welcome()
        self._plant.register(self._prefix, WINDOW)

    def run(self) -> None:
        plant, number, chance = self._plant, self.done, random.Random(self.done)
        for i, stream in enumerate(STREAMS):
            plant.append(stream, 2 * number, self._lines(8 * number + i, chance.randint(2, 5)))
        names = [f"{number}-{i}" for i in range(5)]
        for i, name in enumerate(names):
            text = f"CNC-{i} E{100 + number}: load {chance.randint(20, 180)} %. What now?"
            stream = STREAMS[i] if i < len(STREAMS) else ""
            severity = chance.randint(0, 3)
            plant.submit(name, self._asked(text), chance.randint(20, 90), severity=severity, stream=stream)
        plant.wait_tokens(names[0], 1)
        plant.append(STREAMS[0], 2 * number + 1, self._lines(8 * number + 5, 2))
        plant.wait_finished(*names)
        self.done += 1

    def _lines(self, first: int, count: int) -> list[int]:
        numbers = range(first, first + count)
        text = (
            LINE.format(i // 60 % 60, i % 60, i % 7, 100 + i % 9, 60 + i % 31, 4 + i % 5) for i in numbers
        )
        return self._tokenizer.encode("".join(text))

    def _asked(self, text: str) -> list[int]:
        return self._prefix + self._tokenizer.encode_special(ALARM.format(text))


class Killer:
    """Kills one of `victims` again and again, `kills` times in all, and starts it again at once."""

    def __init__(self, plant: SpeculationPlant, victims: tuple[str, ...], kills: int) -> None:
        self._plant = plant
        self._victims = victims
        self._chance = random.Random(SEED)
        self.left = kills
        self.killed: Counter[str] = Counter()
        self._at = time.monotonic() + LONGEST_S

    def __call__(self) -> None:
        if not self.left or time.monotonic() < self._at:
            return
        victim = self._chance.choice(self._victims)
        self._plant.kill(victim)
        self._plant.start(victim)
        self.killed[victim] += 1
        self.left -= 1
        self._at = time.monotonic() + self._chance.uniform(SHORTEST_S, LONGEST_S)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_model("smollm2-135m", Paths(data=ROOT / ".ringline")).tokenizer()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "victims",
    [("context",), ("verifier",), ("context", "verifier", "draft")],
    ids=["context", "verifier", "any"],
)
def test_whoever_is_killed_every_answer_is_the_undisturbed_one(
    tmp_path: Path, tokenizer: Tokenizer, victims: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is lost of the pool, nothing is left in shared memory."""
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for directory in (disturbed, undisturbed):
        directory.mkdir()
    started = time.monotonic()
    with plant_in(disturbed) as plant:
        rounds = Rounds(plant, tokenizer)
        rounds.begin()
        killer = plant.disturb = Killer(plant, victims, KILLS)
        while killer.left:
            rounds.run()
        rounds.run()
        check_pool(plant)
        answers = {name: answer.tokens for name, answer in plant.answers.items()}
    took = time.monotonic() - started
    assert answers == same_rounds(undisturbed, tokenizer, rounds.done)
    tokens = sum(map(len, answers.values()))
    killed = ", ".join(f"{name} {count}" for name, count in killer.killed.items())
    said = f"killed: {killed} in {took:.0f} s; {rounds.done} rounds, {len(answers)} answers, {tokens} tokens"
    with capsys.disabled():
        print(f"\n{said}")


def plant_in(directory: Path) -> SpeculationPlant:
    return SpeculationPlant(directory, sources=("retrieval", "cpu"), max_sequences=3)


def same_rounds(directory: Path, tokenizer: Tokenizer, count: int) -> dict[str, list[int]]:
    with plant_in(directory) as plant:
        rounds = Rounds(plant, tokenizer)
        rounds.begin()
        for _ in range(count):
            rounds.run()
        check_pool(plant)
        return {name: answer.tokens for name, answer in plant.answers.items()}


def check_pool(plant: SpeculationPlant) -> None:
    """With the streams closed every block is free, pinned or only cached, and context finds nothing wrong."""
    for stream in STREAMS:
        plant.wait_computed(stream)
        plant.close_stream(stream)
    plant.disturb = lambda: None
    deadline = time.monotonic() + IDLE_S
    while (pool := plant.pool()).blocks_private or pool.blocks_shared:
        assert time.monotonic() < deadline, f"not given back: {pool}"
    time.sleep(IDLE_S)
    assert pool.blocks_free + pool.blocks_cached + pool.blocks_pinned == pool.blocks_total
    said = plant.log()
    for wrong in ("inconsistent", "contradicts", "Traceback", "sequence failed"):
        assert wrong not in said, said
