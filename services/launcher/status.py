"""`ringline status`: what is alive, asked over the bus."""

from __future__ import annotations

import os
import time
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints, socket_file
from shared.bus.events import Joined
from shared.bus.messages.fields import Message
from shared.bus.messages.joining import Hello
from shared.bus.messages.status import PoolReply, PoolRequest, ServiceStatus, StatusReply, StatusRequest
from shared.config.errors import RinglineError
from shared.config.settings import Settings

_SERVICES = """last heard: age of the latest heartbeat, of which there is one a second
busy for: how long its loop has been in one step; a forward pass is one"""
_SEQUENCES = """alarm: its id; empty for a stream, and where a profile's prompt is computed
tokens: prompt and answer so far, of which "in pool" have their K/V there
blocks: of 16 tokens each, of which "shared" belong to the profile"""
R = TypeVar("R", bound=Message)
EXPECTED = ("context", "verifier", "draft", "gateway")


class NotAlive(RinglineError):
    """There is no plant, or no context in it, that could be asked."""


def ask_status(settings: Settings, timeout_s: float = 3.0) -> StatusReply:
    """Context's view of the plant; NotAlive when nothing runs or context does not answer."""
    return _ask(settings, StatusRequest(), StatusReply, timeout_s)


def ask_pool(settings: Settings, timeout_s: float = 3.0) -> PoolReply:
    """Whose the blocks are; NotAlive like `ask_status`."""
    return _ask(settings, PoolRequest(), PoolReply, timeout_s)


def _ask(settings: Settings, question: Message, kind: type[R], timeout_s: float) -> R:
    endpoints = Endpoints.of(settings.paths)
    if not socket_file(endpoints.control).exists():
        raise NotAlive(f"nothing runs in {settings.paths.runtime}; start it with: ringline up --config FILE")
    client = BusClient(endpoints, Hello(role="status", incarnation=time.monotonic_ns(), pid=os.getpid()))
    client.start()
    try:
        return _exchange(client, question, kind, settings, time.monotonic() + timeout_s)
    finally:
        client.close("status shown")


def _exchange(client: BusClient, question: Message, kind: type[R], settings: Settings, deadline: float) -> R:
    while (left := deadline - time.monotonic()) > 0:
        event = client.receive(left)
        if isinstance(event, Joined):
            client.send(question)
        elif isinstance(event, kind):
            return event
    raise NotAlive(
        f"context does not answer in {settings.paths.runtime}: it is starting, has hung or was killed; "
        "see its log, or start it with: ringline up --config FILE"
    )


def missing(reply: StatusReply, wanted: tuple[str, ...] = EXPECTED) -> list[str]:
    """Names of the wanted services that are not alive. Context has answered, so it is."""
    alive = {service.role for service in reply.services if service.alive} | {"context"}
    return [name for name in wanted if name not in alive]


def show(reply: StatusReply, console: Console) -> None:
    """Two tables, services and sequences, with what their columns mean, and one line about the pool."""
    by_role = {service.role: service for service in reply.services}
    services = _table("services", _SERVICES, "service", "alive", "pid", "last heard", "busy for", "note")
    for name in EXPECTED:
        services.add_row(name, *_service_cells(by_role.get(name), answering=name == "context"))
    console.print(services)
    used = reply.blocks_total - reply.blocks_free
    console.print(
        f"pool: {reply.pool_bytes / 2**20:.0f} MB in {reply.kv}, {used} of {reply.blocks_total} blocks used, "
        f"{reply.blocks_pinned} pinned, {reply.blocks_peak} at most; {reply.waiting} requests waiting"
    )
    if reply.sequences:
        console.print(_sequence_table(reply))


def _service_cells(service: ServiceStatus | None, answering: bool) -> tuple[str | Text, ...]:
    if service is None:
        return ("yes" if answering else "NO", "", "", "", "")
    alive = "yes" if service.alive else "NO"
    ages = (f"{service.age_s:.1f} s", f"{service.busy_s:.1f} s")
    return (alive, str(service.pid), *ages, Text(service.note))


def _sequence_table(reply: StatusReply) -> Table:
    columns = ("alarm", "profile", "tokens", "in pool", "blocks", "shared")
    table = _table("sequences", _SEQUENCES, *columns)
    for s in reply.sequences:
        row = (s.label, s.profile, s.tokens, s.kv_len, s.blocks, s.shared_blocks)
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def _table(title: str, caption: str, *columns: str) -> Table:
    return Table(*columns, title=title, caption=caption, caption_justify="left")
