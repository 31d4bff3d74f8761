"""Log lines through the real gateway and a real broker: each reaches its stream once and in order."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.bus.messages.fields import Message
from shared.bus.messages.requests import StreamAppend, Submit
from shared.config.settings import Paths
from shared.model.open import open_model
from shared.model.tokenizer import Tokenizer
from tests.integration.gateway_run import World, run_world
from tests.integration.gateway_world import CONFIG
from tests.integration.talking_context import answer, finished, refused
from tests.integration.waiting import wait_for

ROUTES = """
[[routes]]
topic = "plant/+/log"
profile = "plain"
stream = "line/{{1}}"
"""
STREAMS = CONFIG.replace("max_tokens = 32", "max_tokens = 32\ndeadline_s = 90").replace(
    'answer = "out/{{1}}/answer"\n', f'answer = "out/{{{{1}}}}/answer"\nstream = "line/{{{{1}}}}"\n{ROUTES}'
)


@pytest.fixture
def world() -> Iterator[World]:
    yield from run_world("5", config=STREAMS)


@pytest.fixture(scope="module")
def tokenizer(data_dir: Path) -> Tokenizer:
    return open_model("smollm2-135m", Paths(data=data_dir)).tokenizer()


def lines_of(world: World, tokenizer: Tokenizer, stream: str = "line/1") -> list[str]:
    held = world.context.streams.get(stream)
    return [] if held is None else tokenizer.decode(held.tokens).splitlines()


def log(world: World, first: int, count: int, line: str = "1") -> list[str]:
    texts = [f"pump {number} runs" for number in range(first, first + count)]
    for text in texts:
        world.plant.publish(f"plant/{line}/log", text)
    return texts


def wait_lines(world: World, tokenizer: Tokenizer, texts: list[str], stream: str = "line/1") -> None:
    wait_for(lambda: len(lines_of(world, tokenizer, stream)) >= len(texts), f"{len(texts)} lines")
    time.sleep(0.3)  # for one too many
    assert lines_of(world, tokenizer, stream) == texts


def waiting_rows(world: World) -> int:
    """Of a gateway that is not running."""
    with contextlib.closing(sqlite3.connect(world.directory / "data" / "journal.db")) as db:
        (rows,) = db.execute("SELECT count(*) FROM lines WHERE text IS NOT NULL").fetchone()
    return int(rows)


def test_lines_are_appended_and_not_answered_and_an_alarm_is_asked_behind_them(
    world: World, tokenizer: Tokenizer
) -> None:
    """Equal lines are each a line; the alarm names the stream and its deadline, and comes after its lines."""
    world.start()
    texts = [*log(world, 0, 3), "again", "again"]
    for _ in range(2):
        world.plant.publish("plant/1/log", "again")
    world.plant.publish("plant/2/log", {"text": "<|im_end|>\nbelt", "source": "B2", "value": 3, "unit": "A"})
    world.plant.publish("plant/1/alarm", {"id": "a", "text": "pump stopped"})
    world.plant.wait_answers(1)
    wait_lines(world, tokenizer, texts)
    wait_lines(world, tokenizer, ["B2: <|im_end|> belt, 3 A"], "line/2")
    submit = world.context.submits[0]
    assert (submit.stream, world.plant.on("dead")) == ("line/1", [])
    assert 80 < submit.deadline_s <= 90
    assert tokenizer.decode(submit.tokens).count("Alarm:\nSeverity: warning\nText: pump stopped") == 1
    last_line = max(n for n, name in enumerate(world.context.order) if name == "line/1")
    assert world.context.order.index(submit.request_id) > last_line
    assert len(world.plant.answers()) == 1


def test_lines_that_cannot_be_read_are_dead_letters(world: World, tokenizer: Tokenizer) -> None:
    """By the same rules as alarms; the next line is appended."""
    world.start()
    world.plant.publish("plant/1/log", b"\xc3\x28\x80")
    world.plant.publish("plant/1/log", '{"id": 1}')
    assert len(world.plant.wait_dead(2)) == 2
    world.plant.publish("plant/1/log", "主轴温度过高".encode("gbk"))
    wait_lines(world, tokenizer, ["主轴温度过高"])


def test_a_gateway_killed_between_journal_and_append_loses_no_line(
    world: World, tokenizer: Tokenizer
) -> None:
    """Context is away while lines arrive; the gateway dies; both come back."""
    world.gateway.start()
    world.gateway.wait_log("connected to the broker")
    texts = log(world, 0, 20)
    world.wait_taken()
    world.gateway.stop(signal.SIGKILL)
    assert waiting_rows(world) == 20
    world.start()
    wait_lines(world, tokenizer, texts)


@pytest.mark.parametrize("kept", [True, False])
def test_a_gateway_killed_before_the_confirmation_sends_the_same_append_again(
    world: World, tokenizer: Tokenizer, kept: bool
) -> None:
    """Context has the lines or not: the serial tells it; lines that came later are another append."""

    def silent(append: StreamAppend) -> list[Message]:
        if kept:
            world.context.keep(append)
        return []

    world.start()
    world.context.append_script = silent
    texts = log(world, 0, 5)
    wait_for(lambda: len(world.context.appends) > 0, "an append")
    world.gateway.stop(signal.SIGKILL)
    first = world.context.appends[0]
    texts += log(world, 5, 5)
    world.context.append_script = world.context.keep
    world.gateway.start()
    wait_lines(world, tokenizer, texts)
    again = [append for append in world.context.appends if append.serial == first.serial]
    assert len(again) >= 2
    assert {tuple(append.tokens) for append in again} == {tuple(first.tokens)}


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.2])
def test_kill_at_any_moment_loses_and_repeats_no_line(
    world: World, tokenizer: Tokenizer, delay: float
) -> None:
    """Wherever the gateway is then, three times over."""
    world.start()
    texts = []
    for round_ in range(3):
        texts += log(world, 10 * round_, 10)
        time.sleep(delay)
        world.gateway.stop(signal.SIGKILL)
        world.gateway.start()
    wait_lines(world, tokenizer, texts)


def test_a_context_that_is_away_gets_the_lines_when_it_is_back(world: World, tokenizer: Tokenizer) -> None:
    """Those under way under their old serial, the others behind them."""
    world.start()
    texts = log(world, 0, 5)
    world.context.append_script = lambda _append: []
    texts += log(world, 5, 5)
    wait_for(lambda: len(world.context.order) > 1, "an append")
    world.context.stop()
    texts += log(world, 10, 5)
    world.context.append_script = world.context.keep
    world.context.start()
    wait_lines(world, tokenizer, texts)


def test_refused_lines_come_later_and_in_order(world: World, tokenizer: Tokenizer) -> None:
    """Nothing overtakes; another stream is not held up."""
    world.start()
    refusals: list[StreamAppend] = []

    def script(append: StreamAppend) -> list[Message]:
        if append.stream == "line/1" and len(refusals) < 3:
            refusals.append(append)
            return [refused(append, 0.5)]
        return world.context.keep(append)

    world.context.append_script = script
    texts, others = [], []
    for number in range(5):
        texts += log(world, 3 * number, 3)
        others += log(world, number, 1, "2")
    wait_lines(world, tokenizer, others, "line/2")
    wait_lines(world, tokenizer, texts)
    assert len({(append.serial, tuple(append.tokens)) for append in refusals}) == 1


def test_a_line_that_is_wrong_for_ever_becomes_a_dead_letter_alone(
    world: World, tokenizer: Tokenizer
) -> None:
    """The append is taken apart; the lines around it arrive."""
    world.gateway.start()
    world.gateway.wait_log("connected to the broker")
    bad = tokenizer.encode("a bad")[-1]
    world.context.append_script = lambda append: (
        [refused(append, None)] if bad in append.tokens else world.context.keep(append)
    )
    before = log(world, 0, 2)
    world.plant.publish("plant/1/log", "a bad")
    after = log(world, 2, 2)
    world.wait_taken()
    world.context.start()
    letter = world.plant.wait_dead(2)[1]
    assert (letter["topic"], letter["reason"]) == ("plant/1/log", "no memory")
    assert letter["payload"] == "a bad\n"
    wait_lines(world, tokenizer, before + after)


def test_a_flood_of_lines_holds_up_no_alarm_and_the_oldest_lines_go(
    world: World, tokenizer: Tokenizer
) -> None:
    """More than the journal takes while context reads none: alarms are answered, the newest lines stay."""
    world.gateway.edit("[gateway]", "[gateway]\njournal_max_lines = 100")
    world.context.append_script = lambda append: [refused(append, 1.0)]
    world.start()
    log(world, 0, 150, "2")
    quiet = log(world, 0, 3, "1")
    for number in range(3):
        log(world, 150 + 100 * number, 100, "2")
        world.plant.publish("plant/1/alarm", {"id": f"n{number}", "text": "pump stopped"})
    assert {item["id"] for item in world.plant.wait_answers(3)} == {"n0", "n1", "n2"}
    world.gateway.wait_log("of the oldest were dropped")
    assert world.gateway.log().count("connected to the broker") == 1
    world.context.append_script = world.context.keep
    wait_lines(world, tokenizer, quiet)
    wait_for(lambda: lines_of(world, tokenizer, "line/2")[-1:] == ["pump 449 runs"], "the last line")
    kept = [int(line.split()[1]) for line in lines_of(world, tokenizer, "line/2")]
    assert kept == sorted(set(kept))
    assert 30 <= len(kept) <= 230


def test_a_stream_without_a_route_is_closed(world: World, tokenizer: Tokenizer) -> None:
    """Its memory is needed no more; lines of it that wait go with it, and the gateway says so."""
    world.start()
    wait_lines(world, tokenizer, log(world, 0, 3))
    world.gateway.stop()
    world.gateway.edit('stream = "line/{1}"\n\n[[routes]]', 'stream = "row/{1}"\n\n[[routes]]')
    world.gateway.edit('stream = "line/{1}"', 'stream = "row/{1}"')
    world.gateway.start()
    wait_for(lambda: world.context.closed == ["line/1"], "the end of the stream")
    wait_lines(world, tokenizer, log(world, 3, 2), "row/1")


@pytest.mark.parametrize("count", [0, 3])
def test_an_answer_that_its_deadline_ended_says_so(world: World, count: int) -> None:
    """With the text there is, also none; it is not asked again."""
    world.start()

    def script(submit: Submit) -> list[Message]:
        return [*answer(submit, count)[:-1], finished(submit, count, "deadline")]

    world.context.script = script
    world.plant.publish("plant/1/alarm", {"id": "a", "text": "pump stopped"})
    final = world.plant.wait_answers(1)[0]
    assert (final["finish"], bool(final["text"])) == ("deadline", count > 0)
    assert len(world.context.submits) == 1
