"""The demonstration's alarms and log lines: read, published over MQTT, and matched with their answers."""

from __future__ import annotations

import json
import queue
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from shared.config.errors import RinglineError

_CONNECT_S = 10.0


@dataclass
class DemoAlarm:
    """`text` is the part of the answer that has streamed so far, `answer` the final message."""

    topic: str
    payload: bytes
    alarm_id: str | None
    shown: str
    text: str = ""
    answer: dict[str, Any] | None = None


@dataclass(frozen=True)
class DemoLine:
    """What a machine logs before its alarm; nobody answers it."""

    topic: str
    payload: bytes


@dataclass(frozen=True)
class Arrived:
    """A message on an answer topic, or on its stream."""

    topic: str
    payload: dict[str, Any]


@dataclass
class AlarmBook:
    """All alarms of the run. Those without an id are known by their topic, of which each has one at most."""

    alarms: list[DemoAlarm] = field(default_factory=list)
    lines: list[DemoLine] = field(default_factory=list)

    def find(self, arrived: Arrived) -> DemoAlarm | None:
        topic = arrived.topic.removesuffix("/stream").removesuffix("/answer") + "/alarm"
        here = [alarm for alarm in self.alarms if alarm.topic == topic]
        named = [alarm for alarm in here if alarm.alarm_id == arrived.payload.get("id")]
        return next(iter(named or [alarm for alarm in here if alarm.alarm_id is None]), None)

    def take(self, arrived: Arrived) -> DemoAlarm | None:
        """Note what has arrived; the alarm when this was its final answer."""
        alarm = self.find(arrived)
        if alarm is None or alarm.answer is not None:
            return None
        if arrived.topic.endswith("/stream"):
            alarm.text = alarm.text[: arrived.payload["index"]] + arrived.payload["text"]
            return None
        alarm.answer = arrived.payload
        return alarm

    @property
    def open(self) -> list[DemoAlarm]:
        return [alarm for alarm in self.alarms if alarm.answer is None]

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [alarm.answer for alarm in self.alarms if alarm.answer is not None]


def read_alarms(path: Path) -> AlarmBook:
    """One message a line: a topic, and the JSON or the text (in `charset`) that is published to it."""
    book = AlarmBook()
    for line in path.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        if "json" in item:
            fields = item["json"]
            value = f" ({fields['value']} {fields.get('unit', '')})" if "value" in fields else ""
            shown = f"{fields.get('source', '')}  {fields['text']}{value}"
            payload = json.dumps(fields, ensure_ascii=False).encode()
            book.alarms.append(DemoAlarm(item["topic"], payload, fields["id"], shown))
            continue
        payload = item["text"].encode(item.get("charset", "utf-8"))
        if item["topic"].endswith("/log"):
            book.lines.append(DemoLine(item["topic"], payload))
        else:
            book.alarms.append(DemoAlarm(item["topic"], payload, None, item["text"]))
    return book


class PlantClient:
    """The plant's side of the broker. What the gateway publishes is in `arrived`."""

    def __init__(self, port: int) -> None:
        self.arrived: queue.Queue[Arrived] = queue.Queue()
        self._subscribed: queue.Queue[None] = queue.Queue()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "ringline-demo-plant", protocol=paho.MQTTv311)
        self._client.on_connect = lambda client, *_: client.subscribe([("plant/+/+/answer/#", 1)])
        self._client.on_subscribe = lambda *_: self._subscribed.put(None)
        self._client.on_message = lambda _c, _u, message: self.arrived.put(
            Arrived(message.topic, json.loads(message.payload))
        )
        try:
            self._client.connect("127.0.0.1", port)
            self._client.loop_start()
            self._subscribed.get(timeout=_CONNECT_S)
        except (OSError, queue.Empty):
            raise RinglineError(f"the embedded broker on port {port} does not answer; see the log") from None

    def publish(self, message: DemoAlarm | DemoLine) -> None:
        self._client.publish(message.topic, message.payload, qos=1)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
