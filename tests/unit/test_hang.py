"""Which process counts as hung."""

from __future__ import annotations

from services.launcher.hang import BUSY_S, PAUSE_S, START_S, Heard, Running
from shared.bus.messages.status import ServiceStatus, StatusReply

HANG_S = 30.0
CONTEXT = Running("context", 1, 0.0)
VERIFIER = Running("verifier", 2, 0.0)


def reply(**busy_s: float) -> StatusReply:
    """An answer of context in which these services are alive, and so long in one step."""
    pids = {"context": 1, "verifier": 2}
    services = [
        ServiceStatus(role=role, pid=pids[role], alive=True, age_s=0, busy_s=busy)
        for role, busy in {"context": 0.0, **busy_s}.items()
    ]
    blocks = ("blocks_total", "blocks_free", "blocks_pinned", "blocks_peak")
    numbers = dict.fromkeys(("generation", "pool_bytes", *blocks, "waiting"), 0)
    return StatusReply.model_validate({**numbers, "services": services, "sequences": []})


class Time:
    """Seconds that pass one by one."""

    def __init__(self, *running: Running) -> None:
        self.heard = Heard(HANG_S)
        self.running = list(running)
        self.now = 0.0

    def passes(self, seconds: float, answer: StatusReply | None) -> dict[str, str]:
        """What is hung in any of these seconds; context gives `answer` in each."""
        found: dict[str, str] = {}
        for _ in range(int(seconds)):
            self.now += 1
            if answer is not None:
                self.heard.reply(answer, self.now)
            found |= self.heard.hung(self.running, self.now)
        return found


def test_who_is_heard_is_never_hung() -> None:
    assert Time(CONTEXT, VERIFIER).passes(5000, reply(verifier=1.0)) == {}


def test_a_service_that_falls_silent_is_hung_after_that_time_and_not_before() -> None:
    time = Time(CONTEXT, VERIFIER)
    time.passes(100, reply(verifier=0))
    assert time.passes(HANG_S, reply()) == {}
    assert time.passes(1, reply()) == {"verifier": "has hung: not heard for 31 s"}


def test_a_context_that_does_not_answer_is_hung_and_nobody_else_is() -> None:
    time = Time(CONTEXT, VERIFIER)
    time.passes(100, reply(verifier=0))
    assert time.passes(HANG_S, None) == {}
    assert list(time.passes(300, None)) == ["context"]


def test_silence_while_context_was_away_is_not_counted() -> None:
    """The others join again when it is back; they have the whole time for that."""
    time = Time(VERIFIER)
    time.passes(100, reply(verifier=0))
    time.passes(100, None)
    assert time.passes(HANG_S, reply()) == {}
    assert list(time.passes(2, reply())) == ["verifier"]


def test_a_service_that_loads_its_model_has_long_to_join() -> None:
    time = Time(CONTEXT, VERIFIER)
    assert time.passes(START_S, reply()) == {}
    assert list(time.passes(2, reply())) == ["verifier"]


def test_a_restarted_service_is_a_new_one() -> None:
    time = Time(CONTEXT, VERIFIER)
    time.passes(100, reply(verifier=0))
    time.running[1] = VERIFIER._replace(pid=3, started=time.now)
    assert time.passes(500, reply()) == {}
    time.running[1] = VERIFIER._replace(started=time.now)  # the first one's process id again
    assert time.passes(500, reply()) == {}


def test_a_step_may_take_long_but_not_for_ever() -> None:
    time = Time(CONTEXT, VERIFIER)
    assert time.passes(10, reply(verifier=BUSY_S)) == {}
    assert time.passes(1, reply(verifier=BUSY_S + 1)) == {"verifier": "has hung: in one step for 301 s"}


def test_a_pause_of_the_launcher_itself_is_nobodys_silence() -> None:
    time = Time(CONTEXT, VERIFIER)
    time.passes(100, reply(verifier=0))
    time.now += 1000
    assert time.passes(PAUSE_S, None) == {}
    assert time.passes(100, reply(verifier=0)) == {}
