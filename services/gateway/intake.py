"""A message from the broker becomes a row of the journal (an alarm or a dead letter) or is a duplicate."""

from __future__ import annotations

import time

import structlog

from services.gateway.alarm import Alarm, parse_content
from services.gateway.answers import dead_letter
from services.gateway.dedupe import Arrival, digest, duplicate_of
from services.gateway.doubts import DoubtLog
from services.gateway.events import Delivery
from services.gateway.journal import Entry, Journal, State
from services.gateway.payload import PayloadError, check_size
from services.gateway.routes import RouteTable, Target
from shared.config.settings import Settings

_log = structlog.get_logger()


class Intake:
    """`take` is called inside a journal batch; the caller acknowledges when that is committed."""

    def __init__(self, settings: Settings, routes: RouteTable, journal: Journal) -> None:
        self._max_payload = settings.gateway.max_payload_bytes
        self._dead_letter_topic = settings.gateway.dead_letter_topic
        self._routes = routes
        self._journal = journal
        self._doubts = DoubtLog()

    def take(self, delivery: Delivery) -> int | None:
        """The row's number, None when there is no new one. JournalFull when it cannot be taken now."""
        if delivery.topic == self._dead_letter_topic.encode():
            return None  # our own, through a subscription that somebody else made for this session
        try:
            topic, target = self._target(delivery.topic)
            alarm, content = self._parse(delivery)
        except PayloadError as error:
            return self._bury(delivery, str(error))
        except Exception as error:  # a fault of ours must not come back with every redelivery
            _log.exception("an alarm could not be read")
            return self._bury(delivery, f"the gateway could not read it: {error!r}")
        arrival = _arrival(delivery, alarm.ts, content)
        if self._is_duplicate(arrival, delivery):
            return None
        self._doubts.note(topic, alarm)
        entry = Entry(arrival, topic, delivery.payload, alarm.severity, target.profile, target.answer)
        return self._journal.add(entry)

    def _target(self, raw: bytes) -> tuple[str, Target]:
        try:
            topic = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise PayloadError("its topic is not UTF-8") from None
        target = self._routes.resolve(topic)
        if target is None:
            raise PayloadError("no route matches its topic; add one, or use another mqtt.client_id")
        return topic, target

    def _parse(self, delivery: Delivery) -> tuple[Alarm, bytes | None]:
        check_size(delivery.size, self._max_payload)
        return parse_content(delivery.payload, self._max_payload)

    def _bury(self, delivery: Delivery, reason: str) -> int | None:
        arrival = _arrival(delivery)
        if self._is_duplicate(arrival, delivery):
            return None
        letter = dead_letter(delivery.topic, delivery.payload, delivery.size, reason)
        topic = delivery.topic.decode("utf-8", "backslashreplace")
        _log.warning(f"not an alarm, sent to {self._dead_letter_topic}", topic=topic, reason=reason)
        entry = Entry(arrival, topic, b"", 0, "", self._dead_letter_topic, letter)
        return self._journal.add(entry, State.DEAD)

    def _is_duplicate(self, arrival: Arrival, delivery: Delivery) -> bool:
        earlier = duplicate_of(arrival, self._journal.seen(arrival))
        if earlier is None:
            return False
        topic = delivery.topic.decode("utf-8", "backslashreplace")
        _log.info("duplicate ignored", topic=topic, of=earlier.seq, retained=delivery.retained)
        return True


def reroute(journal: Journal, routes: RouteTable, dead_letter_topic: str) -> None:
    """Give what an earlier configuration left unanswered the profiles and topics of this one.

    An alarm whose route is gone is answered on the dead-letter topic: nothing is published elsewhere.
    """
    with journal.batch():
        journal.redirect_dead_letters(dead_letter_topic)
        for topic, profile, out_topic in journal.addresses():
            target = _resolve_or_none(routes, topic) or Target(profile, dead_letter_topic)
            if target != Target(profile, out_topic):
                journal.redirect(topic, target.profile, target.answer)


def _resolve_or_none(routes: RouteTable, topic: str) -> Target | None:
    try:
        return routes.resolve(topic)
    except PayloadError:
        return None


def _arrival(delivery: Delivery, ts: float | None = None, content: bytes | None = None) -> Arrival:
    return Arrival(
        digest=digest(delivery.topic, delivery.payload),
        id_key=None if content is None else digest(delivery.topic, content),
        ts=ts,
        received=time.time(),
        retained=delivery.retained,
        redelivered=delivery.redelivered,
        packet=delivery.packet if delivery.qos else None,
    )
