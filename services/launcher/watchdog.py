"""Asks context for the plant's status again and again, and says which process has hung."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from services.launcher.hang import Heard, Running
from services.launcher.status import EXPECTED
from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.events import BusRefused, Joined
from shared.bus.messages.joining import Hello
from shared.bus.messages.status import StatusReply, StatusRequest

_ASK_S = 2.0
_REFUSED_S = 30.0  # when context has no room for one more that asks


class Watchdog:
    """Never blocks; `close` it at the end."""

    def __init__(self, endpoints: Endpoints, hang_s: float) -> None:
        self._endpoints = endpoints
        self._hang_s = hang_s
        self._heard = Heard(hang_s)
        self._client: BusClient | None = None
        self._next_ask = 0.0

    def hung(self, running: Iterable[Running]) -> dict[str, str]:
        """Names of the hung processes among these, and what is wrong with each. Call it often."""
        now = time.monotonic()
        if self._client is None:
            if now < self._next_ask:
                return {}
            self._client = self._join()
        try:
            self._listen(self._client, now)
        except BusRefused:
            self._give_up(now)
            return {}
        return self._heard.hung((process for process in running if process.name in EXPECTED), now)

    def close(self) -> None:
        if self._client is not None:
            self._client.close("the launcher stops")
            self._client = None

    def _join(self) -> BusClient:
        hello = Hello(role="status", incarnation=time.monotonic_ns(), pid=os.getpid())
        client = BusClient(self._endpoints, hello)
        client.start()
        return client

    def _listen(self, client: BusClient, now: float) -> None:
        while (item := client.receive(0.0)) is not None:
            if isinstance(item, StatusReply):
                self._heard.reply(item, now)
            elif isinstance(item, Joined):
                self._next_ask = now
        if now >= self._next_ask:
            self._next_ask = now + _ASK_S
            client.send(StatusRequest())

    def _give_up(self, now: float) -> None:
        """Nobody is judged until there is room again."""
        self.close()
        self._heard = Heard(self._hang_s)
        self._next_ask = now + _REFUSED_S
