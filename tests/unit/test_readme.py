"""What the two READMEs say about messages is what the gateway reads and writes."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from services.gateway.alarm import Alarm, parse_alarm
from services.gateway.answers import Timing, dead_letter, error_answer, final_answer, stream_delta
from services.gateway.routes import RouteTable
from services.launcher.demo_alarms import AlarmBook, DemoAlarm
from services.launcher.demo_show import summary
from shared.bus.messages.requests import Finished
from shared.bus.messages.status import StatusReply
from shared.config.load import load_settings

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
TABLES = {
    "alarm": ("field", "字段"),
    "answer": ("field of the answer", "回答的字段"),
    "error": ("field of an error", "错误的字段"),
    "stream": ("field of a stream message", "流消息的字段"),
    "dead letter": ("field of a dead letter", "死信的字段"),
}
FULL = Alarm(text="hot", id="B2", source="boiler-2", code="TAH-204")
DONE = Finished(
    request_id="r",
    reason="stop",
    prompt_tokens=9,
    answer_tokens=9,
    cached_tokens=3,
    passes=4,
    drafted=3,
    accepted=2,
)
MESSAGES = {
    "answer": [final_answer("B2", FULL, False, "t", "m", DONE, Timing(1, 2, 3))],
    "error": [error_answer("B2", FULL, "why")],
    "stream": [stream_delta("B2", 0, "t")],
    "dead letter": [dead_letter(b"t", b"x", 1, "why"), dead_letter(b"t", b"\xff", 1, "why")],
}

readmes = pytest.mark.parametrize(("readme", "language"), [(ENGLISH, 0), (CHINESE, 1)], ids=["en", "zh"])


def fields_of_table(readme: Path, title: str) -> list[str]:
    """The names in the first column of the table with that heading."""
    lines = readme.read_text(encoding="utf-8").splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {title} |"))
    names: list[str] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        names += re.findall(r"`([a-z0-9_]+)`", line.split("|")[1])
    return names


def example(readme: Path) -> tuple[str, dict[str, Any]]:
    """Topic and payload of the mosquitto_pub command."""
    command = re.search(r"^    mosquitto_pub .*?\}'$", readme.read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert command is not None
    words = shlex.split(command[0])
    return words[words.index("-t") + 1], json.loads(words[words.index("-m") + 1])


@readmes
@pytest.mark.parametrize("kind", MESSAGES)
def test_the_documented_fields_are_those_of_the_message(readme: Path, language: int, kind: str) -> None:
    sent = [name for message in MESSAGES[kind] for name in json.loads(message)]
    documented = fields_of_table(readme, TABLES[kind][language])
    assert sorted(documented) == sorted(set(sent))


@readmes
def test_the_documented_fields_of_an_alarm_are_those_that_are_read(readme: Path, language: int) -> None:
    documented = fields_of_table(readme, TABLES["alarm"][language])
    assert sorted(documented) == sorted(set(Alarm.model_fields) - {"doubts"})


@readmes
def test_the_example_is_answered_by_the_shipped_configuration(readme: Path, language: int) -> None:
    """In the README's language, on the topics it names."""
    settings = load_settings(ROOT / "deploy" / "ringline.toml")
    topic, payload = example(readme)
    target = RouteTable(settings).resolve(topic)
    assert target is not None
    assert target.profile == ("en", "zh")[language]
    text = readme.read_text(encoding="utf-8")
    assert f"`{target.answer}`" in text
    assert f"`{target.answer}/stream`" in text
    assert f"`{settings.gateway.dead_letter_topic}`" in text
    alarm = parse_alarm(json.dumps(payload).encode(), 65_536)
    assert alarm.doubts == ()
    assert alarm.id == payload["id"]


@readmes
def test_the_times_of_the_demonstrations_table_are_named_as_there(readme: Path, language: int) -> None:
    answer = json.loads(MESSAGES["answer"][0])
    book = AlarmBook([DemoAlarm("t", b"", "B2", "hot", answer=answer)])
    status = StatusReply(
        generation=1,
        pool_bytes=1,
        blocks_total=1,
        blocks_free=1,
        blocks_pinned=0,
        blocks_peak=1,
        waiting=0,
        services=[],
        sequences=[],
    )
    out = io.StringIO()
    Console(file=out, width=100).print(summary(book, status, {}, 1.0))
    for field, value in (("ttft_ms", "2 ms"), ("queued_ms", "1 ms")):
        line = next(line for line in out.getvalue().splitlines() if f"({field})" in line)
        assert value in line
        assert field in fields_of_table(readme, TABLES["answer"][language])


def test_the_demonstration_has_the_topics_of_the_shipped_configuration() -> None:
    table = RouteTable(load_settings(ROOT / "deploy" / "ringline.toml"))
    for line in (ROOT / "deploy" / "demo" / "alarms.jsonl").read_text(encoding="utf-8").splitlines():
        assert table.resolve(json.loads(line)["topic"]) is not None
