"""The gateway process against a real broker; context only talks. No alarm is lost, none is answered twice."""

from __future__ import annotations

import resource
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Submit
from tests.integration.gateway_run import World, run_world
from tests.integration.gateway_world import GatewayProcess
from tests.integration.talking_context import answer, finished, long_answer, rejected
from tests.integration.waiting import wait_for


@pytest.fixture(params=["5", "3.1.1"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    yield from run_world(request.param)


@pytest.fixture
def world5() -> Iterator[World]:
    yield from run_world("5")


def test_an_alarm_is_answered_with_stream_and_final_message(world: World) -> None:
    """JSON in, deltas and the final JSON out; the deltas joined are the text."""
    world.start()
    world.plant.publish(
        "plant/1/alarm", {"id": "a1", "text": "bearing hot", "value": "93.5", "severity": "critical"}
    )
    final = world.plant.wait_answers(1)[0]
    assert final["id"] == "a1"
    assert final["model"] == "smollm2-135m"
    assert final["finish"] == "stop"
    assert final["severity"] == 3
    assert final["answer_tokens"] == 12
    assert 0 <= final["queued_ms"] <= final["ttft_ms"] <= final["duration_ms"]
    deltas = world.plant.on("out/1/answer/stream")
    text = ""
    for delta in deltas:
        assert delta["index"] == len(text)
        text += delta["text"]
    assert text.strip() == final["text"] != ""
    assert world.context.submits[0].severity == 3


def test_plain_text_gbk_and_mosquitto_pub_by_hand(world5: World) -> None:
    """What a person types into mosquitto_pub is an alarm, also in GBK."""
    world5.start()
    command = ["mosquitto_pub", "-p", str(world5.broker.port), "-q", "1", "-t", "plant/7/alarm", "-m"]
    subprocess.run([*command, "conveyor stopped"], check=True, timeout=20)
    subprocess.run([*command, "主轴温度过高".encode("gbk")], check=True, timeout=20)
    assert len(world5.plant.wait_answers(2, "7")) == 2


def test_bad_payloads_become_dead_letters_with_a_reason(world5: World) -> None:
    """10 MB, invalid bytes, nothing, broken JSON: each is told why, and the next alarm is answered."""
    world5.start()
    for payload in (b"x" * 10_000_000, b"\xc3\x28\x80", b"", b'{"text": ', b'{"id": 1}', b'[{"text": "a"}]'):
        world5.plant.publish("plant/1/alarm", payload)
    letters = world5.plant.wait_dead(6)
    reasons = " | ".join(letter["reason"] for letter in letters)
    for part in ("10000000 bytes", "neither UTF-8", "empty", "not valid JSON", 'without a "text"', "array"):
        assert part in reasons
    assert all(letter["topic"] == "plant/1/alarm" for letter in letters)
    world5.plant.publish("plant/1/alarm", "still alive")
    world5.plant.wait_answers(1)


def test_without_a_broker_the_gateway_waits_for_one(world5: World) -> None:
    """One clear line, then it connects when the broker comes."""
    world5.broker.stop()
    world5.context.start()
    world5.gateway.start()
    world5.gateway.wait_log("no MQTT broker at 127.0.0.1")
    time.sleep(3)
    assert world5.gateway.log().count("no MQTT broker") == 1
    world5.broker.start()
    world5.gateway.wait_log("connected to the broker")
    world5.plant.wait_connected()
    world5.plant.publish("plant/1/alarm", "late")
    world5.plant.wait_answers(1)


def test_alarms_published_while_the_gateway_is_dead_are_answered(world: World) -> None:
    """The persistent session keeps them; the first connect after a restart wipes nothing."""
    world.start()
    world.plant.publish("plant/1/alarm", {"id": "before", "text": "one"})
    world.plant.wait_answers(1)
    world.gateway.stop(signal.SIGKILL)
    for number in range(5):
        world.plant.publish("plant/1/alarm", {"id": f"n{number}", "text": f"alarm {number}"})
    world.gateway.start()
    expected = {"before", *(f"n{number}" for number in range(5))}
    wait_for(lambda: {item["id"] for item in world.plant.answers()} == expected, "every answer")


def test_a_broker_restart_loses_neither_alarms_nor_subscriptions(world: World) -> None:
    """The broker is stopped with its queue on disk; alarms before and after are answered."""
    world.start()
    world.context.stop()
    world.plant.publish("plant/1/alarm", {"id": "before", "text": "one"})
    world.broker.stop()
    world.context.start()
    world.gateway.wait_log("the connection to the broker is lost")
    world.broker.start()
    world.gateway.wait_log("connected to the broker", 2)
    world.plant.wait_connected()
    world.plant.publish("plant/1/alarm", {"id": "after", "text": "two"})
    assert {item["id"] for item in world.plant.wait_answers(2)} == {"before", "after"}


def test_a_context_restart_resubmits_what_is_unanswered(world5: World) -> None:
    """The same request, after the profile, until it is answered; the reader gets one answer."""
    world5.start()
    world5.context.script = lambda submit: answer(submit)[:2]  # dies in the middle of the answer
    world5.plant.publish("plant/1/alarm", {"id": "a", "text": "pump cavitates"})
    wait_for(lambda: len(world5.context.submits) == 1, "the request")
    world5.context.stop()
    world5.context.script = answer
    world5.context.start()
    final = world5.plant.wait_answers(1)[0]
    first, *again = world5.context.submits
    assert again
    assert {item.request_id for item in again} == {first.request_id}
    text = "".join(delta["text"] for delta in world5.plant.on("out/1/answer/stream"))
    assert text.strip() == final["text"]


def test_a_gateway_killed_while_an_answer_streams_gives_it_after_its_restart(world5: World) -> None:
    """The journal knows the alarm; context is asked for the same request again."""
    world5.start()
    world5.context.script = lambda submit: answer(submit)[:2]
    world5.plant.publish("plant/1/alarm", {"id": "a", "text": "pump cavitates"})
    wait_for(lambda: len(world5.plant.on("out/1/answer/stream")) == 1, "the stream")
    world5.gateway.stop(signal.SIGKILL)
    world5.context.script = answer
    world5.gateway.start()
    world5.plant.wait_answers(1)
    assert len({item.request_id for item in world5.context.submits}) == 1


@pytest.mark.parametrize("delay", [0.0, 0.004, 0.02, 0.08, 0.3])
def test_kill_at_any_moment_loses_no_alarm(world5: World, delay: float) -> None:
    """Alarms arrive, the gateway is killed `delay` later, wherever it is then: each gets its answer."""
    world5.start()
    for number in range(8):
        world5.plant.publish("plant/1/alarm", {"id": f"n{number}", "text": f"alarm number {number}"})
    time.sleep(delay)
    world5.gateway.stop(signal.SIGKILL)
    world5.gateway.start()
    expected = {f"n{number}" for number in range(8)}
    wait_for(lambda: {item["id"] for item in world5.plant.answers()} == expected, "every answer")


def test_duplicates_and_retained_replays_are_answered_once(world: World) -> None:
    """Milliseconds apart, the same id again, and a retained alarm that comes with every new session."""
    world.start()
    for _ in range(3):
        world.plant.publish("plant/1/alarm", "valve stuck")
        world.plant.publish("plant/1/alarm", {"id": "x", "text": "valve stuck"})
    world.plant.publish("plant/1/alarm", "a retained alarm", retain=True)
    world.plant.wait_answers(3)
    for _ in range(2):
        world.gateway.stop()
        world.gateway.start()
        world.gateway.wait_log("connected to the broker")
    world.plant.publish("plant/1/alarm", "the last one")
    world.plant.wait_answers(4)
    assert len(world.plant.answers()) == 4


def test_a_rejected_alarm_is_submitted_again_when_context_asks_for_it(world5: World) -> None:
    """`retry_after` is obeyed."""
    world5.start()
    rejections: list[Submit] = []

    def script(submit: Submit) -> list[Message]:
        if len(rejections) < 2:
            rejections.append(submit)
            return [rejected(submit, 0.3)]
        return answer(submit)

    world5.context.script = script
    world5.plant.publish("plant/1/alarm", {"id": "a", "text": "pump cavitates"})
    assert world5.plant.wait_answers(1)[0]["id"] == "a"
    assert len(world5.context.submits) == 3


def test_an_alarm_that_cannot_be_answered_gets_an_error_answer(world5: World) -> None:
    """Rejected for ever, or failed three times: nobody waits for an answer that does not come."""
    world5.start()
    world5.context.script = lambda submit: [rejected(submit, None)]
    world5.plant.publish("plant/1/alarm", {"id": "a", "text": "one"})
    assert world5.plant.wait_answers(1)[0] == {"id": "a", "severity": 1, "error": "the queue is full"}
    world5.context.script = lambda submit: [finished(submit, 0, "failed", "a broken table")]
    world5.plant.publish("plant/1/alarm", {"id": "b", "text": "two"})
    assert world5.plant.wait_answers(2)[1]["error"] == "a broken table"
    assert len({item.request_id for item in world5.context.submits}) == 4


def test_critical_alarms_go_first_and_no_more_are_in_flight_than_allowed(world5: World) -> None:
    """Waiting alarms are submitted by severity; four are in flight."""
    world5.gateway.start()
    world5.gateway.wait_log("connected to the broker")
    for number in range(6):
        severity = 3 if number > 3 else 0
        world5.plant.publish(
            "plant/1/alarm", {"id": f"n{number}", "text": f"t {number}", "severity": severity}
        )
    world5.context.script = lambda _submit: []
    world5.wait_taken()
    world5.context.start()
    wait_for(lambda: len(world5.context.submits) >= 4, "the requests")
    time.sleep(0.5)
    assert [item.severity for item in world5.context.submits] == [3, 3, 0, 0]


def test_a_lost_token_message_is_replayed_not_skipped(world5: World) -> None:
    """A gap in the tokens makes the gateway ask again instead of publishing an answer with a hole."""
    world5.start()
    tries: list[Submit] = []

    def script(submit: Submit) -> list[Message]:
        tries.append(submit)
        accepted, first, second, end = answer(submit)
        return [accepted, second, end] if len(tries) == 1 else [accepted, first, second, end]

    world5.context.script = script
    world5.plant.publish("plant/1/alarm", {"id": "a", "text": "the pump of line one cavitates badly"})
    final = world5.plant.wait_answers(1)[0]
    text = "".join(delta["text"] for delta in world5.plant.on("out/1/answer/stream"))
    assert final["text"] == text.strip()
    assert len(tries) >= 2


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_an_answer_that_the_broker_does_not_take_becomes_a_short_one(version: str) -> None:
    """MQTT 5 tells its limit, 3.1.1 hangs up: neither is published for ever, and the next answer comes."""
    for world in run_world(version, "max_packet_size 500"):
        world.start()
        world.context.script = long_answer
        world.plant.publish("plant/1/alarm", {"id": "long", "text": "pump cavitates"})
        assert "larger" in (error := world.plant.wait_answers(1)[0]["error"]) or "hung up" in error
        world.context.script = lambda submit: answer(submit, 4)
        world.plant.publish("plant/1/alarm", {"id": "short", "text": "belt slips"})
        assert world.plant.wait_answers(2)[1]["id"] == "short"


def test_a_broker_that_forgot_everything_is_subscribed_again(world: World) -> None:
    """A restart without persistence: the session is gone, the alarms come again."""
    world.start()
    world.broker.forget()
    world.gateway.wait_log("connected to the broker", 2)
    world.plant.wait_connected()
    world.plant.publish("plant/1/alarm", {"id": "after", "text": "two"})
    assert world.plant.wait_answers(1)[0]["id"] == "after"


def test_filters_of_an_earlier_configuration_are_unsubscribed(world5: World) -> None:
    """The broker's session would deliver them for ever."""
    world5.start()
    world5.gateway.stop()
    world5.gateway.edit('topic = "plant/+/alarm"', 'topic = "factory/+/alarm"')
    world5.gateway.start()
    world5.gateway.wait_log("connected to the broker", 2)
    world5.plant.publish("plant/1/alarm", "old topic")
    world5.plant.publish("factory/2/alarm", "new topic")
    world5.plant.wait_answers(1, "2")
    assert world5.plant.on("dead") == []


def test_a_disk_that_is_full_for_a_while_loses_no_alarm(world5: World) -> None:
    """Nothing is acknowledged while the journal cannot be written; then everything goes on."""
    world5.start()
    world5.plant.publish("plant/1/alarm", {"id": "before", "text": "zero"})
    world5.plant.wait_answers(1)
    process = world5.gateway.process
    assert process is not None
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))
    for number in range(5):
        world5.plant.publish("plant/1/alarm", {"id": f"n{number}", "text": f"number {number}"})
    world5.gateway.wait_log("the journal cannot be written")
    time.sleep(1.5)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert {item["id"] for item in world5.plant.wait_answers(6)} == {"before", *(f"n{n}" for n in range(5))}
    assert world5.gateway.log().count("the journal cannot be written") <= 3


def test_sigterm_stops_the_gateway_cleanly(world5: World) -> None:
    """Exit code 0, soon, with nothing on the bus left behind."""
    world5.start()
    assert world5.gateway.stop() == 0


def test_a_second_gateway_is_told_so(world5: World) -> None:
    """One line and exit code 2."""
    world5.start()
    second = GatewayProcess(world5.directory, world5.broker.port)
    second.start()
    assert second.process is not None
    assert second.process.wait(60) == 2
    assert "gateway runs already in" in second.log()
