"""Context against a naive model, step by step: requests, streams, forks, commits, wraps, preemption, deaths.

Here is what a gateway does and what must always hold; the verifier and its memory are `context_model.py`.
RINGLINE_MACHINE_EXAMPLES sets how many runs there are.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from services.context.streams import SILENT_S
from shared.bus.messages.requests import RegisterProfile, Rejected, StreamAppend, StreamAppended, Submit
from tests.unit.context_model import ModelledVerifier, label

PREFIXES = {"none": [], "even": list(range(100, 132)), "odd": list(range(200, 221))}
CHANGED = {"none": [], "even": list(range(110, 142)), "odd": list(range(210, 236))}
STREAMS = ("line 1", "line 2")
WINDOW = 40


class ContextMachine(ModelledVerifier):
    def __init__(self) -> None:
        super().__init__()
        self.prefixes = dict(PREFIXES)
        self.stream_profile: dict[str, str] = {}
        self.serial = 0
        self.heard: dict[str, float] = {}  # of streams: when the gateway last spoke of them

    @initialize()
    def begin(self) -> None:
        self.plant.joined = {"gateway"}
        self.start_verifier()
        for name in PREFIXES:
            self.register(name)

    @rule(name=st.sampled_from(sorted(PREFIXES)))
    def register(self, name: str) -> None:
        self.plant.sessions.register(RegisterProfile(profile=name, tokens=self.prefixes[name], window=WINDOW))
        self.collect()

    @rule(name=st.sampled_from(["even", "odd"]), chance=st.integers(0, 4))
    def profile_changes(self, name: str, chance: int) -> None:
        if chance:
            return
        self.prefixes[name] = (PREFIXES if self.prefixes[name] == CHANGED[name] else CHANGED)[name]
        for stream in [s for s, profile in self.stream_profile.items() if profile == name]:
            self.streams.pop(stream, None)
            del self.stream_profile[stream]
        self.register(name)

    @rule(
        stream=st.sampled_from(STREAMS),
        name=st.sampled_from(sorted(PREFIXES)),
        count=st.integers(0, 40),
        again=st.booleans(),
    )
    def append_comes(self, stream: str, name: str, count: int, again: bool) -> None:
        self.append(stream, name, count, again)

    def append(self, stream: str, name: str, count: int, again: bool) -> None:
        """What is acknowledged is in the stream; a serial is taken once, whatever is sent again."""
        name = self.stream_profile.get(stream, name)
        self.serial += 1
        start = len(self.streams.get(stream, []))
        tokens = [400 + (3 * (start + i)) % 97 for i in range(count)]
        append = StreamAppend(stream=stream, profile=name, serial=self.serial, tokens=tokens)
        before = self.streams.get(stream)
        self.plant.sessions.streams.append(append)
        self.forget_silent(stream)
        if any(isinstance(message, StreamAppended) for message in self.plant.sent["gateway"]):
            self.stream_profile[stream] = name
            if before is None:
                self.streams[stream] = [*self.prefixes[name], *tokens]
            else:
                before += tokens
            if again:
                self.plant.sessions.streams.append(append)
        self.collect()

    def forget_silent(self, newcomer: str) -> None:
        """Streams that made room for this one must have been silent."""
        live = {sequence.stream for sequence in self.plant.ledger.live.values()}
        for closed in set(self.streams) - live:
            assert closed != newcomer
            assert self.plant.now - self.heard[closed] >= SILENT_S
            del self.streams[closed], self.stream_profile[closed]
        self.heard[newcomer] = self.plant.now

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), count=st.integers(1, 40), rounds=st.integers(0, 6))
    def stream_goes_on(self, data: st.DataObject, count: int, rounds: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.streams)))
        for _ in range(rounds):
            self.append(stream, "", count, False)
            self.work(3, 16)

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), prompt=st.integers(1, 30), answer=st.integers(1, 60), severity=st.integers(0, 3))
    def ask_a_stream(self, data: st.DataObject, prompt: int, answer: int, severity: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.streams)))
        self.submit("", prompt, answer, severity, stream, True, 0.0)

    @rule(stream=st.sampled_from(STREAMS), chance=st.integers(0, 2))
    def close_stream(self, stream: str, chance: int) -> None:
        if chance:
            return
        self.plant.sessions.streams.close(stream)
        self.streams.pop(stream, None)
        self.stream_profile.pop(stream, None)
        self.collect()

    @rule(
        name=st.sampled_from(sorted(PREFIXES)),
        prompt=st.integers(0, 45),
        answer=st.integers(1, 120),
        severity=st.integers(0, 3),
        stream=st.sampled_from(["", "", *STREAMS]),
        alike=st.booleans(),
        deadline=st.sampled_from([0.0, 0.0, 50.0]),
    )
    def submit_comes(
        self, name: str, prompt: int, answer: int, severity: int, stream: str, alike: bool, deadline: float
    ) -> None:
        self.submit(name, prompt, answer, severity, stream, alike, deadline)

    def submit(
        self, name: str, prompt: int, answer: int, severity: int, stream: str, alike: bool, deadline: float
    ) -> None:
        name = self.stream_profile.get(stream, name)
        first = 0 if alike else len(self.requests)
        tokens = self.prefixes[name] + [1 + (7 * i + first) % 90 for i in range(prompt)]
        request = Submit(
            request_id=f"r{len(self.requests)}",
            profile=name,
            tokens=tokens,
            max_tokens=answer,
            stop_tokens=[0],
            severity=severity,
            stream=stream,
            deadline_s=deadline,
        )
        self.requests[request.request_id] = request
        self.plant.sessions.submit(request)
        if not any(isinstance(message, Rejected) for message in self.plant.sent["gateway"]):
            self.heard[stream] = self.plant.now
        self.collect()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.requests)))
        if request in self.done:
            self.answers.pop(request, None)
        self.plant.sessions.submit(self.requests[request])
        self.collect()

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), prompt=st.integers(1, 30))
    def submit_something_else(self, data: st.DataObject, prompt: int) -> None:
        """The same id with another content, live, waiting or finished."""
        name = data.draw(st.sampled_from(sorted(self.requests)))
        tokens = PREFIXES[self.requests[name].profile] + [95] * prompt
        self.requests[name] = self.requests[name].model_copy(update={"tokens": tokens})
        self.answers.pop(name, None)
        self.plant.sessions.submit(self.requests[name])
        self.collect()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.plant.sessions.cancel(data.draw(st.sampled_from(sorted(self.requests))))
        self.collect()

    @rule(seconds=st.integers(1, 60))
    def time_passes(self, seconds: int) -> None:
        self.plant.now += seconds
        self.plant.sessions.expire()
        self.collect()

    @rule(chance=st.integers(0, 2))
    def context_is_killed(self, chance: int) -> None:
        if chance:
            return
        self.plant.joined.discard("verifier")
        self.inbox.clear()
        self.plant.crash()
        self.heard = dict.fromkeys(STREAMS, self.plant.now)
        self.watch_copies()
        self.plant.sessions.gateway_joined()
        self.collect()
        for name in PREFIXES:
            self.register(name)

    # --- what must hold ---

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        assert self.plant.ledger.check_integrity() == []
        assert self.plant.ledger.available() >= 0

    @invariant()
    def every_visible_position_holds_what_was_committed(self) -> None:
        for sequence in self.plant.ledger.live.values():
            ring = sequence.ring
            first = max(ring.sink, sequence.kv_len - ring.window + 1)
            tokens = self.all_tokens(sequence)
            for position in [*range(min(ring.sink, sequence.kv_len)), *range(first, sequence.kv_len)]:
                slot = ring.slot(position)
                place = sequence.blocks[slot // 16], slot % 16
                assert self.memory.get(place) == label(tokens, position)

    @invariant()
    def every_stream_has_what_was_acknowledged(self) -> None:
        live = {s.stream: s for s in self.plant.ledger.live.values() if s.kind == "stream"}
        assert set(live) == set(self.streams)
        for name, tokens in self.streams.items():
            assert live[name].known == len(tokens)
            assert live[name].tokens == tokens[live[name].first :]

    @invariant()
    def nobody_waits_while_there_is_room(self) -> None:
        sessions = self.plant.sessions
        if not self.plant.ledger.live and not self.plant.ledger.held:
            assert len(sessions.waiting) == 0

    @invariant()
    def the_gateway_has_every_answer_token(self) -> None:
        for sequence in self.plant.ledger.live.values():
            if sequence.followed and sequence.answer_len:
                known: Any = self.answers.get(sequence.request_id, [])
                assert known == sequence.answer


EXAMPLES = int(os.environ.get("RINGLINE_MACHINE_EXAMPLES", "250"))
ContextMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=60)
TestContextAgainstTheModel = ContextMachine.TestCase
