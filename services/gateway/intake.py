"""A message from the broker becomes a row of the journal (alarm, log line, dead letter) or is a duplicate."""

from __future__ import annotations

import time

import structlog

from services.gateway.alarm import Alarm, Said, parse_content
from services.gateway.answers import dead_letter
from services.gateway.dedupe import Arrival, digest, duplicate_of, line_arrived_before
from services.gateway.doubts import DoubtLog
from services.gateway.events import Delivery
from services.gateway.journal import Entry, Journal, JournalFull, State
from services.gateway.journal_lines import Line, LineJournal
from services.gateway.payload import PayloadError, check_size
from services.gateway.prompt import CHARS_PER_TOKEN, line_room
from services.gateway.routes import RouteTable, Target
from services.gateway.wording import line_text
from shared.config.settings import Settings

_log = structlog.get_logger()


class Intake:
    """`take` is called inside a journal batch; the caller acknowledges when that is committed."""

    def __init__(self, settings: Settings, routes: RouteTable, journal: Journal) -> None:
        self._max_payload = settings.gateway.max_payload_bytes
        self._dead_letter_topic = settings.gateway.dead_letter_topic
        self._profiles = {profile.name: profile for profile in settings.profiles}
        self._routes = routes
        self._journal = journal
        self._doubts = DoubtLog()

    def take(self, delivery: Delivery) -> int | None:
        """The number of a new alarm or dead letter, else None. JournalFull when it cannot be taken now."""
        if delivery.topic == self._dead_letter_topic.encode():
            return None  # our own, through a subscription that somebody else made for this session
        target = None
        try:
            topic, target = self._target(delivery.topic)
            alarm, said = self._parse(delivery)
        except PayloadError as error:
            return self._bury(delivery, target, str(error))
        except Exception as error:  # a fault of ours must not come back with every redelivery
            _log.exception("an alarm could not be read")
            return self._bury(delivery, target, f"the gateway could not read it: {error!r}")
        arrival = _arrival(delivery, alarm.ts, said)
        if not target.answer:
            self._take_line(arrival, topic, target, alarm)
            return None
        if self._is_duplicate(arrival, delivery):
            return None
        self._doubts.note(topic, alarm)
        entry = Entry(
            *(arrival, topic, delivery.payload, alarm.severity, target.profile, target.answer),
            stream=target.stream,
        )
        return self._journal.add(entry)

    def _take_line(self, arrival: Arrival, topic: str, target: Target, alarm: Alarm) -> None:
        lines = self._journal.lines
        if line_arrived_before(arrival, lines.seen(arrival)):
            return
        self._doubts.note(topic, alarm)
        profile = self._profiles[target.profile]
        text = line_text(alarm, profile.language, line_room(profile) * CHARS_PER_TOKEN)
        lines.add(arrival, Line(topic, target.stream, target.profile, text))

    def _target(self, raw: bytes) -> tuple[str, Target]:
        try:
            topic = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise PayloadError("its topic is not UTF-8") from None
        target = self._routes.resolve(topic)
        if target is None:
            raise PayloadError("no route matches its topic; add one, or use another mqtt.client_id")
        return topic, target

    def _parse(self, delivery: Delivery) -> tuple[Alarm, Said | None]:
        check_size(delivery.size, self._max_payload)
        return parse_content(delivery.payload, self._max_payload)

    def _bury(self, delivery: Delivery, target: Target | None, reason: str) -> int | None:
        arrival = _arrival(delivery)
        if self._is_duplicate(arrival, delivery):
            return None
        letter = dead_letter(delivery.topic, delivery.payload, delivery.size, reason)
        topic = delivery.topic.decode("utf-8", "backslashreplace")
        _log.warning(f"not an alarm, sent to {self._dead_letter_topic}", topic=topic, reason=reason)
        entry = Entry(arrival, topic, b"", 0, "", self._dead_letter_topic, letter)
        try:
            return self._journal.add(entry, State.DEAD)
        except JournalFull:
            if target is None or target.answer:
                raise
        return None  # what was to be a log line holds up no alarm; the warning above is what is left of it

    def _is_duplicate(self, arrival: Arrival, delivery: Delivery) -> bool:
        earlier = duplicate_of(arrival, self._journal.seen(arrival))
        if earlier is None:
            return False
        topic = delivery.topic.decode("utf-8", "backslashreplace")
        _log.info("duplicate ignored", topic=topic, of=earlier.seq, retained=delivery.retained)
        return True


def reroute(journal: Journal, routes: RouteTable, dead_letter_topic: str) -> None:
    """Give what an earlier configuration left the profiles, topics and streams of this one.

    An alarm whose route is gone is answered on the dead-letter topic: nothing is published elsewhere.
    """
    with journal.batch():
        journal.redirect_dead_letters(dead_letter_topic)
        for topic, *old in journal.addresses():
            target = _resolve_or_none(routes, topic)
            if target is None or not target.answer:
                target = Target(old[0], dead_letter_topic)
            if target != Target(*old):
                journal.redirect(topic, target.profile, target.answer, target.stream)
        _reroute_lines(journal.lines, routes)


def _reroute_lines(lines: LineJournal, routes: RouteTable) -> None:
    for topic, stream, profile in lines.addresses():
        target = _resolve_or_none(routes, topic)
        if target is None or target.answer:
            lost = lines.drop(topic)
            _log.warning("log lines without a route any more are dropped", topic=topic, lines=lost)
        elif (target.stream, target.profile) != (stream, profile):
            lines.redirect(topic, target.stream, target.profile)


def _resolve_or_none(routes: RouteTable, topic: str) -> Target | None:
    try:
        return routes.resolve(topic)
    except PayloadError:
        return None


def _arrival(delivery: Delivery, ts: float | None = None, said: Said | None = None) -> Arrival:
    return Arrival(
        digest=digest(delivery.topic, delivery.payload),
        id_key=None if said is None else digest(delivery.topic, said.id),
        ts=ts,
        received=time.time(),
        retained=delivery.retained,
        redelivered=delivery.redelivered,
        packet=delivery.packet if delivery.qos else None,
        content_key=None if said is None else digest(delivery.topic, said.content),
    )
