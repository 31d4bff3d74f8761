"""`ringline pool`: the map of the K/V pool."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.bus.messages.status import PoolReply


def show_pool(reply: PoolReply, console: Console) -> None:
    """Geometry, whose the blocks are, what the prefix cache did, and every sequence."""
    console.print(
        f"pool: {reply.blocks_total} blocks of {reply.block_bytes / 1024:.0f} KiB and 16 positions, "
        f"generation {reply.generation}",
        highlight=False,
    )
    for name, plane in zip(("target", "draft"), reply.planes, strict=False):
        console.print(f"{name}: {plane}", highlight=False)
    console.print(_blocks(reply))
    console.print(_cache(reply), highlight=False)
    if reply.sequences:
        console.print(_sequences(reply))


def _blocks(reply: PoolReply) -> Table:
    table = Table("free", "cached", "pinned", "private", "shared", "promised", title="blocks")
    counts = (
        reply.blocks_free,
        reply.blocks_cached,
        reply.blocks_pinned,
        reply.blocks_private,
        reply.blocks_shared,
        reply.blocks_promised,
    )
    table.add_row(*map(str, counts))
    return table


def _cache(reply: PoolReply) -> str:
    cache = reply.cache
    return (
        f"prefix cache: {cache.hit_tokens} prompt tokens found in {cache.hit_blocks} blocks, "
        f"{cache.miss_tokens} computed; {cache.inserted_blocks} blocks entered, "
        f"{cache.evicted_blocks} evicted, {cache.replaced_blocks} replaced before a write"
    )


def _sequences(reply: PoolReply) -> Table:
    """As narrow as it can be: a terminal may have 80 columns, and a pipe has."""
    table = Table(title="sequences", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("seq", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("name", overflow="fold")
    table.add_column("profile", overflow="fold")
    for name in ("known", "in pool", "sink", "window", "ring", "at", "blocks", "shared"):
        table.add_column(name, no_wrap=True)
    for s in reply.sequences:
        place = (s.known, s.kv_len, s.sink, s.window, s.ring, s.ring_position, s.blocks, s.shares)
        table.add_row(str(s.seq), s.kind, Text(s.name), Text(s.profile), *map(str, place))
    return table
