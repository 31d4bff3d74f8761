"""What `ringline pool` shows."""

from __future__ import annotations

import io

from rich.console import Console

from services.launcher.pool import show_pool
from shared.bus.messages.status import CacheStatus, PoolReply, PoolSequence

STREAM = PoolSequence(
    seq=123456,
    kind="request",
    name="en/[red]pump[/red]",
    profile="english",
    known=123456,
    kv_len=123456,
    sink=144,
    window=1024,
    ring=1120,
    ring_position=1119,
    blocks=79,
    shares=9,
)
REPLY = PoolReply(
    generation=1,
    planes=["30 layers x 3 heads x 64, f16"],
    block_bytes=737280,
    blocks_total=273,
    blocks_free=200,
    blocks_cached=1,
    blocks_pinned=13,
    blocks_private=50,
    blocks_shared=9,
    blocks_promised=30,
    cache=CacheStatus(),
    sequences=[STREAM],
)


def shown(width: int) -> str:
    out = io.StringIO()
    show_pool(REPLY, Console(file=out, width=width))
    return out.getvalue()


def test_a_streams_name_is_shown_as_it_is() -> None:
    """It is from a topic: whatever stands there is no markup."""
    assert "en/[red]pump[/red]" in shown(140)


def test_80_columns_are_enough_for_every_heading_and_number() -> None:
    words = ("known", "in pool", "window", "ring", "blocks", "shared", "123456", "1024", "1119", "request")
    assert [word for word in words if word not in shown(80)] == []
    assert "…" not in shown(80)
