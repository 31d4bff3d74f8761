"""A whole plant to be measured: `ringline up` with its own broker, and an MQTT client as its machines."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import paho.mqtt.client as paho
import psutil
from paho.mqtt.enums import CallbackAPIVersion

from bench.memory_limit import MemoryLimit
from bench.series import Memory, read_memory
from services.launcher.demo_plant import free_port
from services.launcher.status import ask_pool, ask_status, missing
from shared.bus.messages.status import PoolReply, StatusReply
from shared.config.errors import RinglineError
from shared.config.load import load_settings

PATIENCE_S = 600.0
_SHARED_MEMORY = Path("/dev/shm")
_PATHS = '[paths]\nruntime = "{home}/run"\nmemory = "{memory}"\ndata = "{home}/data"\n'
_BROKER = (
    '[mqtt]\nversion = "3.1.1"\nport = {port}\n[broker]\nenabled = true\nhost = "127.0.0.1"\nport = {port}\n'
)


class MqttPlant:
    """`body`: the configuration without paths and broker. Models and weight caches are those of `data`.

    `answers`: what came back on answer topics, by id.
    """

    def __init__(self, data: Path, body: str, limit: MemoryLimit | None = None) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="ringline-"))
        self._memory = _SHARED_MEMORY / self._home.name
        self._port = free_port()
        self._limit = limit
        (self._home / "data").mkdir(mode=0o700)
        for name in ("models", "cache"):
            (self._home / "data" / name).symlink_to((data / name).resolve())
        self._config = self._home / "ringline.toml"
        head = _PATHS.format(home=self._home, memory=self._memory) + _BROKER.format(port=self._port)
        self._config.write_text(head + body, encoding="utf-8")
        self._settings = load_settings(self._config)
        self._log = self._home / "up.log"
        self.answers: dict[str, dict[str, Any]] = {}
        self.dead: list[dict[str, Any]] = []  # dead letters

    def __enter__(self) -> MqttPlant:
        command = [sys.executable, "-m", "services.launcher", "up", "--config", str(self._config)]
        with self._log.open("wb") as log:
            wrapped = self._limit.wrap(command) if self._limit else command
            self._up = subprocess.Popen(wrapped, stdout=log, stderr=log)
        try:
            self.wait(lambda: "connected to the broker" in self.log() and self._alive(), "the four services")
            self._client = self._connect()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self._stop()

    def publish(self, topic: str, payload: str) -> None:
        self._client.publish(topic, payload, qos=1)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """RinglineError with the end of the log when it takes too long or the plant has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline or self._up.poll() is not None:
                raise RinglineError(f"waited in vain for {what}; the plant's log ends: {self.log()[-500:]}")
            time.sleep(0.1)

    def pids(self) -> dict[str, int]:
        """By service; the launcher's own too."""
        found = {"launcher": self._up.pid}
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._up.pid).children():
                named = [word for word in child.cmdline() if word.startswith("services.")]
                if named:
                    found[named[0].rpartition(".")[2]] = child.pid
        return found

    def memory(self) -> dict[str, Memory]:
        return {name: read_memory(pid) for name, pid in self.pids().items()}

    def status(self) -> StatusReply:
        return ask_status(self._settings, 10.0)

    def pool(self) -> PoolReply:
        return ask_pool(self._settings, 10.0)

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _alive(self) -> bool:
        with contextlib.suppress(RinglineError):
            return not missing(self.status())
        return False

    def _stop(self) -> None:
        self._up.send_signal(signal.SIGTERM)
        try:
            self._up.wait(60)
        finally:
            self._up.kill()
            shutil.rmtree(self._home, ignore_errors=True)
            shutil.rmtree(self._memory, ignore_errors=True)

    def _connect(self) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, "ringline-bench", protocol=paho.MQTTv311)
        client.on_connect = lambda client, *_: client.subscribe([("plant/+/answer", 1), ("ringline/#", 1)])
        client.on_message = lambda _c, _u, message: self._arrived(message.topic, json.loads(message.payload))
        client.max_queued_messages_set(0)
        client.connect("127.0.0.1", self._port)
        client.loop_start()
        return client

    def _arrived(self, topic: str, payload: dict[str, Any]) -> None:
        if topic.startswith("plant/"):
            self.answers[str(payload["id"])] = payload
        else:
            self.dead.append(payload)
