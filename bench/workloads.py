"""What `bench.speculation` asks: requests of three kinds, as the gateway would submit them.

alarms        300 alarms of a plant in the order of time; the first 200 are its past (bench/data/README.md)
chat          questions of operators, Chinese and English
adversarial   hex dumps and random words to be worked on: nothing predicts the answers
"""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from services.gateway.alarm import Alarm, parse_alarm
from services.gateway.prompt import Prompter
from shared.bus.messages.requests import GREEDY, Sampling
from shared.config.settings import Profile, Settings
from shared.model.open import ModelFile

DATA = Path(__file__).with_name("data")
NAMES = ("alarms", "chat", "adversarial")
PAST = {"alarms": 200, "chat": 0, "adversarial": 0}  # answered before anything is measured
_EPISODE = timedelta(days=7)
_WARMUP = "TEST OF THE ALARM LINE, NO ACTION"
_WARMUP_TOKENS = 48
_SEVERITY = {"H": 2, "L": 2, "HH": 3, "LL": 3}


@dataclass(frozen=True)
class Question:
    """`key` says what is repeated: of an alarm its tag and type, of other questions their own id."""

    id: str
    key: str
    profile: Profile
    tokens: list[int]
    severity: int


@dataclass(frozen=True)
class Workload:
    """`forced`: answers go on to their last allowed token; a stop token does not end them."""

    name: str
    questions: list[Question]
    warmup: Question  # something to begin with that has nothing to do with the others
    prefixes: dict[str, list[int]]  # tokens of each profile's prompt, by the profile's name
    past: int
    forced: bool
    stop_tokens: list[int]
    sampling: Sampling = GREEDY

    @property
    def digest(self) -> str:
        """Of everything that an answer depends on but the model."""
        asked = [(q.tokens, q.profile.max_tokens, q.profile.window) for q in self.questions]
        text = json.dumps([asked, self.stop_tokens])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def load_workload(name: str, model: ModelFile, most: int | None = None) -> Workload:
    """The workload in the model's tokens; answers of `most` tokens at most. KeyError for an unknown name."""
    prompter = Prompter(model)
    profiles = {profile.name: _shorter(profile, most or profile.max_tokens) for profile in _profiles()}
    source = {"alarms": _alarms, "chat": _texts, "adversarial": _texts}[name]
    questions = [
        Question(
            id_, key, profiles[profile], prompter.prompt(profiles[profile], alarm).tokens, alarm.severity
        )
        for id_, key, profile, alarm in source(name)
    ]
    used = {question.profile.name: question.profile for question in questions}
    forced = name == "adversarial"
    first = questions[0].profile
    warmup = prompter.prompt(first, _received(_WARMUP)).tokens
    return Workload(
        name=name,
        questions=questions,
        warmup=Question("warmup", "warmup", _shorter(first, _WARMUP_TOKENS), warmup, severity=1),
        prefixes={profile.name: prompter.prefix(profile) for profile in used.values()},
        past=PAST[name],
        forced=forced,
        stop_tokens=[] if forced else prompter.stop_tokens,
    )


def _shorter(profile: Profile, most: int) -> Profile:
    return profile.model_copy(update={"max_tokens": min(most, profile.max_tokens)})


def _profiles() -> tuple[Profile, ...]:
    text = (DATA / "profiles.toml").read_text(encoding="utf-8")
    return Settings.model_validate(tomllib.loads(text)).profiles


def _alarms(name: str) -> Iterator[tuple[str, str, str, Alarm]]:
    """Every episode begins a week after the one before: two of them at the same minute would be copies."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=1):
            at = datetime.fromisoformat(row["timestamp"]) + int(row["episode"]) * _EPISODE
            payload = {
                "id": number,
                "source": row["tag"],
                "code": row["type"],
                "severity": _SEVERITY[row["type"]],
                "ts": at.timestamp(),
                "text": row["description"],
            }
            yield str(number), f"{row['tag']} {row['type']}", name, _received(json.dumps(payload))


def _texts(name: str) -> Iterator[tuple[str, str, str, Alarm]]:
    for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["id"], row["id"], row.get("profile", name), _received(row["text"])


def _received(payload: str) -> Alarm:
    """What the gateway makes of a message from a plant."""
    return parse_alarm(payload.encode(), 1 << 16)
