"""Log lines, losses, refusals and restarts in any order, against what the assets have logged."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.gateway.journal import Journal
from shared.bus.messages.requests import StreamAppend, StreamRefused
from tests.unit.gateway_lines_world import FakeContext, made_appends, put


class LinesMachine(RuleBasedStateMachine):
    """Lines, losses, refusals and restarts in any order: context has each line once, in order."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "journal.db"
        self.journal = Journal(self.path, 100)
        self.context = FakeContext()
        self.appends = made_appends(self.journal, self.context)
        self.model: dict[str, str] = defaultdict(str)
        self.number = 0

    @rule(stream=st.sampled_from("abc"), count=st.integers(1, 4))
    def log(self, stream: str, count: int) -> None:
        made = [f"{stream}{self.number + n}" for n in range(count)]
        self.number += count
        put(self.journal, *made, stream=stream)
        self.model[stream] += "".join(f"{text}\n" for text in made)
        self.appends.fill()

    @rule(data=st.data(), fate=st.sampled_from(["taken", "answer lost", "refused", "wrong"]))
    def hear(self, data: st.DataObject, fate: str) -> None:
        """Context gets something that was sent, perhaps long ago, perhaps again."""
        sent = [message for message in self.context.sent if isinstance(message, StreamAppend)]
        if not sent:
            return
        message = data.draw(st.sampled_from(sent[-6:]))
        known = message.serial <= self.context.serials.get(message.stream, -1)
        if fate in ("refused", "wrong") and not known:
            several = message.tokens.count(10) > 1
            never = fate == "wrong" and several  # a single one would rightly be lost
            wait = None if never else 0.0
            self.appends.handle(
                StreamRefused(stream=message.stream, serial=message.serial, reason="r", retry_after_s=wait)
            )
            self.appends._not_before.clear()
        elif not self._overtakes(message):
            answer = self.context.take(message)
            if fate == "taken":
                self.appends.handle(answer)
        self.appends.fill()

    def _overtakes(self, message: StreamAppend) -> bool:
        """Messages come in order: context sees no old one of a session after a newer one of its stream."""
        newest = max(
            m.serial for m in self.context.sent if isinstance(m, StreamAppend) and m.stream == message.stream
        )
        return message.serial < newest and message.serial > self.context.serials.get(message.stream, -1)

    @rule()
    def restart(self) -> None:
        self.journal.close()
        self.journal = Journal(self.path, 100)
        self.context.sent.clear()  # the bus forgets with the session
        self.appends = made_appends(self.journal, self.context)
        self.appends.fill()

    @rule()
    def settle(self) -> None:
        """Everything arrives now."""
        for _ in range(200):
            self.appends.joined()
            for message in self.context.sent:
                if isinstance(message, StreamAppend):
                    self.appends.handle(self.context.take(message))
            self.context.sent.clear()
            self.appends.fill()
            if not self.context.sent:
                break
        assert self.journal.lines.waiting() == 0
        assert self.context.texts == self.model

    @invariant()
    def nothing_is_wrong_so_far(self) -> None:
        for stream, text in self.context.texts.items():
            assert self.model[stream].startswith(text)

    def teardown(self) -> None:
        self.journal.close()
        self.directory.cleanup()


TestLinesMachine = LinesMachine.TestCase
TestLinesMachine.settings = settings(max_examples=40, stateful_step_count=25)
