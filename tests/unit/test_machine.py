"""`ringline check` looks at the machine: models, instruction sets, CPUs, the broker's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.launcher.check import check_plant
from services.launcher.machine import check_machine
from shared.config.errors import RinglineError
from shared.config.settings import Draft, Models, Mqtt, Paths, Profile, Route, Settings, Verifier
from shared.native import isa_names

NO_CPU = max(os.sched_getaffinity(0)) + 1


def settings(home: Path, **changes: object) -> Settings:
    fields = {"paths": Paths(data=home), "models": Models(target=_model(home), draft=None)}
    return Settings(**{**fields, **changes})  # type: ignore[arg-type]


def _model(home: Path) -> str:
    path = home / "mine.gguf"
    path.touch()
    return str(path)


def test_what_is_here_is_no_line(tmp_path: Path) -> None:
    """A known instruction set and CPUs of this process."""
    cpu = min(os.sched_getaffinity(0))
    chosen = Verifier(isa=isa_names()[-1], affinity=(cpu,))
    assert check_machine(settings(tmp_path, verifier=chosen, draft=Draft(affinity=()))) == []


def test_a_model_that_is_not_fetched_yet_is_a_line_with_the_command_for_it(
    tmp_path: Path,
) -> None:
    """In the configuration's data directory, not in another."""
    lines = check_machine(settings(tmp_path, models=Models()))
    assert [line.partition(":")[0] for line in lines] == ["models.target", "models.draft"]
    assert f"run `ringline models fetch qwen2.5-coder-1.5b --data {tmp_path}`" in lines[0]


def test_a_lexicon_that_is_not_built_yet_is_a_line_with_the_command_for_it(tmp_path: Path) -> None:
    path = tmp_path / "plant.lexicon"
    assert check_machine(settings(tmp_path, draft=Draft(lexicon=path))) == [
        f"draft.lexicon: {path}: there is no such file; run `ringline lexicon build --out {path} …`"
    ]
    path.write_bytes(b"")
    assert check_machine(settings(tmp_path, draft=Draft(lexicon=path))) == []


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("models.target", {"models": Models(target="/nowhere/none.gguf", draft=None)}),
        ("models.draft", {"models": Models(target="smollm2-135m", draft="./none.gguf")}),
        ("verifier.isa", {"verifier": Verifier(isa="bogus")}),
        ("draft.isa", {"draft": Draft(isa="bogus")}),
        ("verifier.affinity", {"verifier": Verifier(affinity=(NO_CPU,))}),
        ("draft.affinity", {"draft": Draft(affinity=(NO_CPU,))}),
        ("mqtt.password_file", {"mqtt": Mqtt(username="a", password_file=Path("/nowhere/password"))}),
        ("mqtt.tls_ca", {"mqtt": Mqtt(tls_ca=Path("/nowhere/ca.pem"))}),
        ("mqtt.tls_key", {"mqtt": Mqtt(tls_cert=Path("/nowhere/c.pem"), tls_key=Path("/nowhere/k.pem"))}),
    ],
)
def test_what_cannot_work_here_names_its_key(tmp_path: Path, key: str, changes: dict[str, object]) -> None:
    with pytest.raises(RinglineError) as caught:
        check_machine(settings(tmp_path, **changes))
    assert key in str(caught.value)


@pytest.mark.parametrize("key", ["target", "draft"])
def test_a_name_that_is_no_model_names_its_key(key: str) -> None:
    profile = Profile(name="en", language="en", system="x")
    route = Route(topic="plant/+/alarm", profile="en", answer="plant/{1}/answer")
    wrong = Settings(models=Models(**{key: "qwen9"}), profiles=(profile,), routes=(route,))
    with pytest.raises(RinglineError, match=rf'models\.{key}: no model is called "qwen9"'):
        check_plant(wrong)


def test_the_instruction_sets_and_cpus_that_there_are_are_named(tmp_path: Path) -> None:
    with pytest.raises(RinglineError, match=", ".join(isa_names())):
        check_machine(settings(tmp_path, verifier=Verifier(isa="bogus")))
    with pytest.raises(RinglineError, match=f"CPU {NO_CPU}, which cannot be used here; there are "):
        check_machine(settings(tmp_path, draft=Draft(affinity=(NO_CPU,))))
