"""Log lines on their way into the streams of context, in order and each once.

    journal ──bundle, commit──▶ StreamAppend ──▶ StreamAppended ──▶ read
                                     ▲    └────▶ StreamRefused ──▶ later; or line by line; or dead letter
                                     └── restart, loss of context, silence: the same serial, the same lines

A stream has one append under way. What it logs meanwhile goes together with the next one, so a refusal never
lets a later line overtake, and a fast log costs few passes. What waits here is in the journal, with a bound
of its own: alarms never wait for its room.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from services.gateway.answers import dead_letter
from services.gateway.dedupe import Arrival, digest
from services.gateway.journal import Entry, Journal, JournalFull, State
from services.gateway.journal_lines import Line
from services.gateway.patience import QUIET_S, retry_wait
from services.gateway.prompt import Prompter
from shared.bus.messages.fields import Message
from shared.bus.messages.requests import StreamAppend, StreamAppended, StreamClose, StreamRefused
from shared.config.settings import Profile, Settings
from shared.config.sparse_log import SparseWarning

IN_FLIGHT = 8  # streams with an append under way
_LINES = 64  # of one append
_APPEND_TOKENS = 512  # of one append, and at most half the window
_REPORT_S = 60.0

_log = structlog.get_logger()


@dataclass(slots=True)
class Append:
    """`sent` is monotonic seconds."""

    message: StreamAppend
    lines: list[Line]
    sent: float


@dataclass(slots=True)
class Counts:
    """Lines since the gateway started."""

    read: int = 0
    cut: int = 0
    refused: int = 0
    dropped: int = 0


class Appends:
    """`send` is dropped by the bus while it is not joined."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        prompter: Prompter,
        send: Callable[[Message], None],
        leads_to: Callable[[str, str], bool],
    ) -> None:
        """`leads_to(stream, profile)`: whether a route still does."""
        self._profiles = {profile.name: profile for profile in settings.profiles}
        self._dead_letter_topic = settings.gateway.dead_letter_topic
        self._most = settings.gateway.journal_max_lines
        self._journal = journal
        self._lines = journal.lines
        self._prompter = prompter
        self._send = send
        self._postponed = SparseWarning("log lines are refused, sending them later")
        self._leads_to = leads_to
        self._live: dict[str, Append] = {}
        self._not_before: dict[str, float] = {}  # of streams whose append was refused, monotonic
        self._done: dict[str, int] = {}  # serials that context has, not in the journal yet
        self._joined = False
        self._reported_at = time.monotonic()
        self._reported = Counts()
        self.counts = Counts()

    # --- the bus comes and goes ---

    def joined(self) -> None:
        """Give up streams of an earlier configuration; send again what context may not have heard."""
        self._joined = True
        self._not_before.clear()
        for stream, profile in self._lines.opened():
            if not self._leads_to(stream, profile):
                self._send(StreamClose(stream=stream))
        for append in self._live.values():
            self._post(append)

    def lost(self) -> None:
        self._joined = False

    def forget(self) -> None:
        """Start again from the journal: a change that was to be written there failed."""
        self._live.clear()
        self._done.clear()

    # --- every turn ---

    def tick(self) -> None:
        """Send again what nobody has spoken of for long, and say what has been done."""
        now = time.monotonic()
        for append in self._live.values():
            if self._joined and now >= append.sent + QUIET_S:
                self._post(append)
        self._report(now)

    def make_room(self) -> None:
        """To be called in the batch that took lines in."""
        self.counts.dropped += self._lines.make_room(self._most)

    def fill(self) -> None:
        """Note what is read, then bundle and send waiting lines, the oldest first."""
        room = IN_FLIGHT - len(self._live) if self._joined else 0
        if not self._done and room <= 0:
            return
        with self._journal.batch():
            for stream, serial in self._done.items():
                self.counts.read += self._lines.read(stream, serial)
            prepared = [self._prepare(stream) for stream in self._candidates()[:room]] if room > 0 else []
        self._done.clear()
        for append in prepared:  # only now: what is sent must be bundled for ever
            if append is not None:
                self._live[append.message.stream] = append
                self._post(append)

    def _candidates(self) -> list[str]:
        now = time.monotonic()
        self._not_before = {stream: at for stream, at in self._not_before.items() if at > now}
        return [
            stream
            for stream in self._lines.streams()
            if stream not in self._live and stream not in self._not_before
        ]

    def _prepare(self, stream: str) -> Append | None:
        """The stream's next append, made now unless an earlier one was not read.

        None: its profile is gone, and the journal could not be told at the start; the next start tells it.
        """
        lines = self._lines.bundled(stream)
        fresh = not lines
        if fresh:
            lines = self._lines.unbundled(stream, _LINES)
        profile = self._profiles.get(lines[0].profile)
        if profile is None:
            self._not_before[stream] = time.monotonic() + retry_wait(None)
            return None
        tokens, count = self._tokens(profile, lines, None if fresh else len(lines))
        lines = lines[:count]
        if fresh:
            self._lines.open(stream, profile.name)
            self._lines.bundle(lines)
        message = StreamAppend(stream=stream, profile=profile.name, serial=lines[-1].seq, tokens=tokens)
        return Append(message, lines, 0.0)

    def _tokens(self, profile: Profile, lines: list[Line], count: int | None) -> tuple[list[int], int]:
        """The tokens of the first `count` lines, else of those that fit one append, and how many they are."""
        most = min(_APPEND_TOKENS, profile.window // 2)
        tokens: list[int] = []
        for index, line in enumerate(lines):
            more, cut = self._prompter.line(profile, line.text)
            if count is None and index and len(tokens) + len(more) > most:
                return tokens, index
            self.counts.cut += cut and count is None
            tokens += more
        return tokens, len(lines)

    def _post(self, append: Append) -> None:
        append.sent = time.monotonic()
        self._send(append.message)

    # --- what context says ---

    def handle(self, message: Message) -> None:
        """A message about an append; one about an append that is not under way (any more) is ignored."""
        match message:
            case StreamAppended(stream=stream, serial=serial):
                append = self._live.get(stream)
                if append is not None and append.message.serial <= serial:
                    self._done[stream] = append.message.serial
                    del self._live[stream]
            case StreamRefused(stream=stream, serial=serial):
                append = self._live.get(stream)
                if append is not None and append.message.serial == serial:
                    self._refused(append, message)

    def _refused(self, append: Append, message: StreamRefused) -> None:
        stream = message.stream
        if message.retry_after_s is not None or not self._give_up(append, message.reason):
            wait = retry_wait(message.retry_after_s)
            self._not_before[stream] = time.monotonic() + wait
            self._postponed(stream=stream, reason=message.reason, wait_s=wait)
        del self._live[stream]

    def _give_up(self, append: Append, reason: str) -> bool:
        """The append is wrong: its lines are tried one by one, a single one becomes a dead letter.

        False when the journal has no room for the letter now.
        """
        stream, serial = append.message.stream, append.message.serial
        if len(append.lines) > 1:
            self._lines.part(stream, serial)
            return True
        try:
            with self._journal.batch():
                self._lines.read(stream, serial)
                self._bury(append.lines[0], reason)
        except JournalFull:
            return False
        self.counts.refused += 1
        return True

    def _bury(self, line: Line, reason: str) -> None:
        topic, payload = line.topic.encode(), line.text.encode()
        _log.warning("a log line is refused", topic=line.topic, stream=line.stream, reason=reason)
        letter = dead_letter(topic, payload, len(payload), reason)
        arrival = Arrival(digest(topic, payload), None, None, time.time())
        entry = Entry(arrival, line.topic, b"", 0, "", self._dead_letter_topic, letter)
        self._journal.add(entry, State.DEAD)

    # --- figures ---

    def _report(self, now: float) -> None:
        """At most once a minute, and when lines are dropped at once: how it goes."""
        counts, last = self.counts, self._reported
        first_drop = counts.dropped > 0 and last.dropped == 0
        if counts == last or (now < self._reported_at + _REPORT_S and not first_drop):
            return
        figures = {
            "read": counts.read,
            "waiting": self._lines.waiting(),
            "cut": counts.cut,
            "refused": counts.refused,
            "dropped": counts.dropped,
        }
        if counts.dropped > last.dropped:
            lost = counts.dropped - last.dropped
            _log.warning(
                f"more log lines than the model can read: {lost} of the oldest were dropped", **figures
            )
        else:
            _log.info("log lines", **figures)
        self._reported_at = now
        self._reported = Counts(counts.read, counts.cut, counts.refused, counts.dropped)
