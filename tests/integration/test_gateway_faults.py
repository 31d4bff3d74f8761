"""The gateway when something is full, refused or wrong: no alarm is lost, and none holds up the others."""

from __future__ import annotations

import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Submit
from tests.integration.gateway_run import World, run_world
from tests.integration.talking_context import answer, finished
from tests.integration.waiting import wait_for

ALARMS = 300


def fill_the_journal(world: World) -> None:
    """Three times as many alarms as the journal takes, while context says nothing."""
    world.gateway.edit("[gateway]", "[gateway]\njournal_max_alarms = 100")
    world.context.script = lambda _submit: []
    world.start()
    for number in range(ALARMS):
        world.plant.publish("plant/1/alarm", {"id": f"n{number}", "text": f"alarm number {number}"})
    world.gateway.wait_log("the journal is full of unanswered alarms")


def all_are_answered_once(world: World) -> None:
    wait_for(lambda: len(world.plant.answers()) >= ALARMS, f"{ALARMS} answers", patience_s=240)
    found = Counter(item["id"] for item in world.plant.answers())
    assert found == Counter(f"n{number}" for number in range(ALARMS))


def said_once_an_episode(world: World) -> bool:
    """Full and going on take turns, however fast the journal fills again."""
    turns = re.findall("the journal is full|takes alarms again", world.gateway.log())
    return turns[::2] == ["the journal is full"] * (len(turns) // 2) and len(turns) % 2 == 0


def submitted(world: World, count: int) -> bool:
    return len(world.context.submits) == count


@pytest.mark.parametrize(
    ("version", "broker"), [("5", ""), ("3.1.1", ""), ("3.1.1", "max_inflight_messages 0")]
)
def test_a_full_journal_drains_and_takes_again(version: str, broker: str) -> None:
    """The broker keeps what has no room, also when it has sent all of it at once."""
    for world in run_world(version, broker):
        fill_the_journal(world)
        world.context.stop()
        world.context.script = answer
        world.context.start()
        all_are_answered_once(world)
        if not broker:
            world.gateway.wait_log("the journal takes alarms again")
            wait_for(partial(said_once_an_episode, world), "a line for each end of being full")


def test_a_full_journal_drains_after_kill_9() -> None:
    """The next gateway finds it full and answers what is there."""
    for world in run_world("5"):
        fill_the_journal(world)
        world.gateway.stop(signal.SIGKILL)
        world.context.script = answer
        world.gateway.start()
        all_are_answered_once(world)


def test_refused_answers_become_dead_letters_and_hold_up_nothing(tmp_path: Path) -> None:
    """The broker's access rules deny one answer topic."""
    rules = tmp_path / "acl"
    rules.write_text("topic deny out/bad/answer\ntopic readwrite #\n")
    for world in run_world("5", f"acl_file {rules}"):
        world.start()
        for number in range(30):
            world.plant.publish("plant/bad/alarm", {"id": f"b{number}", "text": "pump hot", "severity": 3})
        world.plant.publish("plant/1/alarm", {"id": "good", "text": "pump hot"})
        world.plant.wait_answers(1)
        letters = world.plant.wait_dead(30)
        assert all("Not authorized" in letter["reason"] for letter in letters)
        assert {letter["topic"] for letter in letters} == {"out/bad/answer"}
        assert all('"finish"' in letter["payload"] for letter in letters)
        assert world.gateway.log().count("connected to the broker") == 1


def test_an_alarm_whose_answer_has_no_topic_is_a_dead_letter() -> None:
    """An empty topic would cost the connection, every time it is tried."""
    for world in run_world("5"):
        route = '[[routes]]\ntopic = "a/+/b"\nprofile = "plain"\nanswer = "{1}"\n[[routes]]'
        world.gateway.edit("[[routes]]", route)
        world.start()
        world.plant.publish("a//b", "pump hot")
        world.plant.publish("plant/1/alarm", "pump hot")
        assert "it is empty" in world.plant.wait_dead(1)[0]["reason"]
        world.plant.wait_answers(1)
        assert world.gateway.log().count("connected to the broker") == 1


def test_an_answer_that_begins_anew_is_not_mixed_with_the_old_one() -> None:
    """Context was restarted and answers otherwise: stream and answer are the new one alone."""

    def other_answer(submit: Submit) -> list[Message]:
        accepted, tokens, _, _ = answer(submit)
        changed = tokens.model_copy(update={"tokens": list(reversed(submit.tokens[-14:-8]))})
        return [accepted, changed, finished(submit, 6)]

    for world in run_world("5"):
        world.start()
        world.context.script = other_answer
        world.plant.publish("plant/1/alarm", {"id": "expected", "text": "pump three cavitates"})
        expected = world.plant.wait_answers(1)[0]["text"]
        world.context.script = lambda submit: answer(submit)[:2]
        world.plant.publish("plant/1/alarm", {"id": "a", "text": "pump three cavitates"})
        wait_for(partial(submitted, world, 2), "the second request")
        world.context.stop()
        world.context.script = other_answer
        world.context.start()
        assert world.plant.wait_answers(2)[1]["text"] == expected
        text = ""
        for delta in world.plant.on("out/1/answer/stream"):
            if delta["id"] == "a":
                text = text[: delta["index"]] + delta["text"]
        assert text.strip() == expected
