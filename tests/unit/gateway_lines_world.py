"""Around log lines in tests: a configuration, deliveries, and the streams of context."""

from __future__ import annotations

import time
from collections import defaultdict

from services.gateway.appends import Appends
from services.gateway.dedupe import Arrival
from services.gateway.events import Delivery
from services.gateway.journal import Journal
from services.gateway.journal_lines import Line
from services.gateway.routes import RouteTable
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import StreamAppend, StreamAppended
from shared.config.settings import Gateway, Profile, Route, Settings

PROFILE = Profile(name="p", language="en", system="s", window=64)


def configured(*routes: Route, most: int = 100) -> Settings:
    return Settings(
        profiles=(PROFILE, PROFILE.model_copy(update={"name": "q"})),
        routes=routes or (Route(topic="log/+", profile="p", stream="{1}"),),
        gateway=Gateway(dead_letter_topic="dead", journal_max_lines=most),
    )


class Letters:
    """A prompter whose tokens are characters."""

    def line(self, _profile: Profile, text: str) -> tuple[list[int], bool]:
        return [ord(letter) for letter in text], False


class FakeContext:
    """What the gateway sends; `take` is context's part, which is idempotent by the serial."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.texts: dict[str, str] = defaultdict(str)
        self.serials: dict[str, int] = {}

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def take(self, message: StreamAppend) -> StreamAppended:
        if message.serial > self.serials.get(message.stream, -1):
            self.serials[message.stream] = message.serial
            self.texts[message.stream] += "".join(map(chr, message.tokens))
        return StreamAppended(stream=message.stream, serial=message.serial)


def made_appends(journal: Journal, context: FakeContext, config: Settings | None = None) -> Appends:
    config = config or configured()
    leads_to = RouteTable(config).leads_to
    made = Appends(config, journal, Letters(), context.send, leads_to)  # type: ignore[arg-type]
    made.joined()
    return made


def delivery(payload: bytes, topic: bytes = b"log/a", **changes: object) -> Delivery:
    fields = {"size": len(payload), "qos": 1, "retained": False, "redelivered": False, "packet": 1}
    return Delivery(topic=topic, payload=payload, **{**fields, "connection": 1, **changes})  # type: ignore[arg-type]


def put(journal: Journal, *texts: str, stream: str = "a") -> list[int]:
    made = []
    with journal.batch():
        for text in texts:
            arrival = Arrival(text.encode().ljust(16), None, None, time.time())
            made.append(journal.lines.add(arrival, Line(f"log/{stream}", stream, "p", f"{text}\n")))
    return made
