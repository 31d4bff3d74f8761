"""The naive model behind the context machine: a verifier, and what it has really written into every slot.

It sees at once when a block is handed out too early or shared wrongly, a visible position is overwritten, or
a table is not the one that was announced. What the gateway does is in `test_context_machine.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from services.context.sequence import Ring, Sequence
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import Finished, Rejected, Submit, Tokens
from shared.bus.messages.sequences import Commit, SeqAppend, SeqClose, SeqOpen, SeqState
from shared.kv.locks import Writer
from tests.unit.context_plant import VOCABULARY, Plant

VERIFIER: Writer = ("verifier", 1)
GARBAGE = (-1, 0)


@dataclass
class Seen:
    """A sequence as the verifier knows it, with the answers to its commits that are still to come.

    `tokens` are all from position 0 on, also those that context has forgotten."""

    tokens: list[int]
    kv_len: int
    epoch: int
    table: list[int]
    ring: Ring
    max_tokens: int
    end: int
    unanswered: int = 0

    def covered(self) -> int:
        n = self.kv_len
        while n < self.kv_len + 64 and self.ring.table_size(n + 1) <= len(self.table):
            n += 1
        return n

    def place(self, position: int) -> tuple[int, int]:
        slot = self.ring.slot(position)
        return self.table[slot // 16], slot % 16


class ModelledVerifier(RuleBasedStateMachine):
    """`plant` is context itself; everything else is the model's own knowledge."""

    def __init__(self) -> None:
        super().__init__()
        self.plant = Plant(blocks=30, record_tokens=200)
        self.plant.segment.is_writing = lambda writer: self.maps  # type: ignore[method-assign]
        self.plant.segment.writers = lambda: [VERIFIER] if self.maps else []  # type: ignore[method-assign]
        self.maps = False  # the verifier's process lives
        self.inbox: list[Message] = []
        self.known: dict[int, Seen] = {}
        self.memory: dict[tuple[int, int], tuple[int, int]] = {}
        self.requests: dict[str, Submit] = {}
        self.answers: dict[str, list[int]] = {}
        self.done: set[str] = set()
        self.streams: dict[str, list[int]] = {}  # all tokens of each open stream
        self.past: dict[int, list[int]] = {}  # by sequence: what a stream or a fork had before
        self.watch_copies()

    def watch_copies(self) -> None:
        """Copies of blocks change the memory, too."""
        cow = self.plant.ledger.cow

        def copy(source: int, target: int) -> None:
            for slot in range(16):
                self.memory.pop((target, slot), None)
                if (source, slot) in self.memory:
                    self.memory[target, slot] = self.memory[source, slot]

        cow.copy = copy

    def teardown(self) -> None:
        self.plant.close()

    def start_verifier(self) -> None:
        """A new process joins, or the old one joins again after it dropped all it knew."""
        self.maps = True
        self.known.clear()
        self.inbox = list(self.plant.writers.joined(VERIFIER))
        self.plant.joined.add("verifier")
        self.plant.sent["verifier"].clear()

    def collect(self) -> None:
        """Messages reach the verifier's inbox; the gateway reads at once."""
        self.inbox += self.plant.sent["verifier"]
        self.plant.sent["verifier"].clear()
        for message in self.plant.sent["gateway"]:
            if isinstance(message, Tokens):
                answer = self.answers.setdefault(message.request_id, [])
                assert message.index <= len(answer)
                assert answer[message.index :] == message.tokens[: len(answer) - message.index]
                answer[message.index :] = message.tokens
            elif isinstance(message, Finished | Rejected):
                self.done.add(message.request_id)
        self.plant.sent["gateway"].clear()
        for sequence in self.plant.ledger.live.values():
            if sequence.seq not in self.past:
                self.past[sequence.seq] = self.history(sequence)

    def history(self, sequence: Sequence) -> list[int]:
        """What a new sequence stands on."""
        if sequence.stream:
            return self.streams[sequence.stream]
        if not sequence.forked:
            return []
        submit = self.requests[sequence.request_id]
        tail = len(submit.tokens) - sequence.ring.sink
        return self.streams[submit.stream][: sequence.prompt_len - tail]

    def all_tokens(self, sequence: Sequence) -> list[int]:
        return self.past[sequence.seq][: sequence.first] + sequence.tokens

    @rule(count=st.integers(1, 10))
    def verifier_reads(self, count: int) -> None:
        if not self.maps:
            return
        taken, self.inbox = self.inbox[:count], self.inbox[count:]
        for message in taken:
            self.read(message)
        self.collect()

    def read(self, message: Message) -> None:
        if isinstance(message, SeqOpen):
            ring = Ring(message.sink, message.window, message.ring)
            end = message.prompt_len + message.max_tokens
            self.known[message.seq] = Seen(
                self.past[message.seq][: message.first] + message.tokens,
                message.kv_len,
                message.epoch,
                list(message.blocks),
                ring,
                message.max_tokens,
                end,
            )
        elif isinstance(message, SeqState):
            seen = self.known.get(message.seq)
            if seen is not None and seen.unanswered and message.epoch == seen.epoch - seen.unanswered + 1:
                seen.unanswered -= 1
                seen.table[message.first_block :] = message.blocks
        elif isinstance(message, SeqAppend):
            seen = self.known.get(message.seq)
            if seen is not None:
                assert message.known == len(seen.tokens)
                seen.tokens += message.tokens
                seen.table[message.first_block :] = message.blocks
        elif isinstance(message, SeqClose):
            self.known.pop(message.seq, None)
            if "verifier" in self.plant.joined:
                self.plant.writers.released(VERIFIER, message.seq)

    def going_on(self) -> list[int]:
        return [seq for seq, s in sorted(self.known.items()) if s.unanswered < 2 and s.kv_len < len(s.tokens)]

    @precondition(lambda self: self.maps and self.going_on())
    @rule(data=st.data(), size=st.integers(1, 16), stop=st.integers(0, 9), lost=st.integers(0, 9))
    def verifier_commits(self, data: st.DataObject, size: int, stop: int, lost: int) -> None:
        self.commit(data.draw(st.sampled_from(self.going_on())), size, stop, lost)

    @rule(rounds=st.integers(1, 12), size=st.integers(3, 16))
    def verifier_works(self, rounds: int, size: int) -> None:
        """Undisturbed for a while, whatever was before."""
        self.work(rounds, size)

    def work(self, rounds: int, size: int) -> None:
        if "verifier" not in self.plant.joined:
            self.start_verifier()
        for _ in range(rounds):
            while self.inbox:
                self.read(self.inbox.pop(0))
                self.collect()
            for seq in self.going_on():
                if seq in self.known:
                    self.commit(seq, size, 1, 1)

    def commit(self, seq: int, size: int, stop: int, lost: int) -> None:
        seen = self.known[seq]
        open_positions = len(seen.tokens) - seen.kv_len
        new: list[int] = []
        if open_positions > 1 or seen.max_tokens == 0:
            written = min(size, open_positions, seen.covered() - seen.kv_len)
        else:
            drafted = min(size, 4, seen.end - len(seen.tokens), seen.covered() - seen.kv_len)
            new = [300 + (len(seen.tokens) + i) % 500 for i in range(drafted)]
            written = drafted
        if written == 0:
            return
        if seen.max_tokens and not new and seen.kv_len + written == len(seen.tokens):
            new = [299]
        finish: Literal["stop"] | None = "stop" if new and stop == 0 else None
        message = Commit(
            seq=seq,
            epoch=seen.epoch,
            kv_len=seen.kv_len,
            written=written,
            tokens=new,
            finish=finish,
        )
        seen.tokens += new
        for position in range(seen.kv_len, seen.kv_len + written):
            self.memory[seen.place(position)] = label(seen.tokens, position)
        seen.kv_len += written
        seen.epoch += 1
        seen.unanswered += 1
        if seen.max_tokens and (finish or len(seen.tokens) >= seen.end):
            del self.known[seq]
        if lost and "verifier" in self.plant.joined:
            self.plant.sessions.commit(message)
        self.collect()

    @precondition(lambda self: self.maps and self.known)
    @rule(data=st.data(), commits=st.integers(1, 2))
    def verifier_is_killed_or_cut_off_while_it_writes(self, data: st.DataObject, commits: int) -> None:
        """Half-written K/V of the next commits: it must never be visible, in whatever sequence."""
        seen = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        commits = min(commits, 2 - seen.unanswered)  # two without an answer, and it waits
        known = len(seen.tokens) + (4 * commits if seen.max_tokens else 0)
        reached = min(seen.covered(), seen.kv_len + commits * 16, known)
        if seen.max_tokens:
            reached = min(reached, seen.end)
        for position in range(seen.kv_len, reached):
            self.memory[seen.place(position)] = GARBAGE

    @rule(data=st.data(), numbers=st.tuples(*[st.integers(0, 70)] * 4))
    def a_senseless_commit_arrives(self, data: st.DataObject, numbers: tuple[int, ...]) -> None:
        seq = data.draw(st.sampled_from([999, *self.plant.ledger.live]))
        epoch, kv_len, written, count = numbers
        before = {s: sequence.snapshot() for s, sequence in self.plant.ledger.live.items()}
        if seq in before and (epoch == before[seq].epoch and kv_len == before[seq].kv_len):
            return
        tokens = [VOCABULARY + 5] * count
        message = Commit(seq=seq, epoch=epoch, kv_len=kv_len, written=written, tokens=tokens)
        self.plant.sessions.commit(message)
        assert before == {s: sequence.snapshot() for s, sequence in self.plant.ledger.live.items()}
        self.plant.sent["verifier"].clear()  # the answer goes to whoever has sent it
        self.collect()

    @rule(dead=st.booleans(), chance=st.integers(0, 2))
    def verifier_is_lost(self, dead: bool, chance: int) -> None:
        """Killed, or only cut off: then it may still write until it is back."""
        if chance:
            return
        self.plant.joined.discard("verifier")
        if dead:
            self.maps = False
            self.known.clear()
        self.inbox.clear()
        self.plant.writers.lost(VERIFIER)
        self.collect()

    @precondition(lambda self: "verifier" not in self.plant.joined)
    @rule()
    def verifier_joins(self) -> None:
        self.start_verifier()
        self.collect()


def label(tokens: list[int], position: int) -> tuple[int, int]:
    """What K/V of a position depends on: itself and every token up to it."""
    return position, hash(tuple(tokens[: position + 1]))
