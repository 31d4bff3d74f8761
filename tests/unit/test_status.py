"""What `ringline status` shows."""

from __future__ import annotations

import io

from rich.console import Console

from services.launcher.status import missing, show
from shared.bus.messages.status import SequenceStatus, ServiceStatus, StatusReply

NOTE = "no connection to the MQTT broker at 127.0.0.1:1883"


def service(role: str, note: str = "") -> ServiceStatus:
    return ServiceStatus(role=role, pid=7, alive=True, age_s=0.4, busy_s=0.0, note=note)


REPLY = StatusReply(
    generation=1,
    pool_bytes=1 << 20,
    blocks_total=100,
    blocks_free=40,
    blocks_pinned=9,
    blocks_peak=70,
    waiting=3,
    services=[service("context"), service("verifier"), service("gateway", NOTE)],
    sequences=[
        SequenceStatus(
            seq=5,
            request_id="f0.1",
            profile="en",
            tokens=90,
            kv_len=89,
            blocks=9,
            shared_blocks=4,
            label="[red]B2-0817",
        )
    ],
)


def shown() -> str:
    out = io.StringIO()
    show(REPLY, Console(file=out, width=140))
    return out.getvalue()


def test_a_sequence_is_shown_with_its_alarms_id_as_it_is() -> None:
    """Whatever a plant writes there is no markup."""
    assert "[red]B2-0817" in shown()


def test_a_gateway_without_its_broker_is_alive_and_says_so() -> None:
    line = next(line for line in shown().splitlines() if "gateway" in line)
    assert "yes" in line
    assert NOTE in line


def test_every_column_that_is_not_a_plain_word_is_explained() -> None:
    for column in ("last heard", "busy for", "alarm", "tokens", "in pool", "blocks", "shared"):
        assert shown().count(column) >= 2


def test_what_is_not_there_is_missing() -> None:
    assert missing(REPLY) == ["draft"]
    line = next(line for line in shown().splitlines() if "draft" in line)
    assert "NO" in line
