"""The whole plant as a user runs it: `ringline up`, four services, a mosquitto, alarms over MQTT."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import psutil
from paho.mqtt.enums import CallbackAPIVersion

from services.launcher.status import ask_status, missing
from shared.bus.messages.status import StatusReply
from shared.config.errors import RinglineError
from shared.config.load import load_settings
from tests.integration.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).resolve().parents[2]
RINGLINE = (sys.executable, "-m", "services.launcher")

CONFIG = """
[paths]
runtime = "{home}/run"
memory = "{memory}"
data = "{home}/data"

[models]
target = "{target}"
draft = ""

[context]
pool_mb = 96

[verifier]
threads = 2

[draft]
sources = ["retrieval"]

[mqtt]
port = {port}

[[profiles]]
name = "en"
language = "en"
window = 256
max_tokens = 24
system = "You are a maintenance engineer. Answer briefly."

[[routes]]
topic = "plant/+/alarm"
profile = "en"
answer = "plant/{{1}}/answer"
"""


def ringline(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [*RINGLINE, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


class PlantHome:
    """Directories with short names (a socket's path is limited), and the configuration in them."""

    def __init__(self, data_dir: Path, port: int, target: str = "smollm2-135m") -> None:
        self.home = Path(tempfile.mkdtemp(prefix=f"rl-{os.getpid()}-"))
        self.memory = Path("/dev/shm") / self.home.name
        data = self.home / "data"
        data.mkdir(mode=0o700)
        for shared in ("models", "cache"):
            (data_dir / shared).mkdir(parents=True, exist_ok=True)
            (data / shared).symlink_to(data_dir / shared)
        self.config = self.home / "ringline.toml"
        text = CONFIG.format(home=self.home, memory=self.memory, target=target, port=port)
        self.config.write_text(text, encoding="utf-8")

    def edit(self, old: str, new: str) -> None:
        text = self.config.read_text(encoding="utf-8")
        assert old in text
        self.config.write_text(text.replace(old, new), encoding="utf-8")

    def remove(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)


class WholePlant:
    """A running `ringline up` and an MQTT client beside it."""

    def __init__(self, home: PlantHome, port: int) -> None:
        self.home = home
        self._settings = load_settings(home.config)
        self._log = home.home / "up.log"
        self._messages: list[tuple[str, bytes]] = []
        self._subscribed = threading.Event()
        self._client = self._connect(port)
        self._up: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [*RINGLINE, "up", "--config", str(self.home.config)]
            self._up = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self.wait_alive()
        # A broker keeps alarms for a session it knows; before the first subscription it knows none.
        wait_for(lambda: "connected to the broker" in self.log(), "the gateway's subscription")

    def freeze(self) -> None:
        """The launcher does nothing more until it is told to stop."""
        assert self._up is not None
        self._up.send_signal(signal.SIGSTOP)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """A stop signal; the exit code. Nothing may be left: no process, no shared memory, no socket."""
        if self._up is None:
            return 0
        children = psutil.Process(self._up.pid).children(recursive=True) if self._up.poll() is None else []
        self._up.send_signal(number)
        self._up.send_signal(signal.SIGCONT)
        try:
            code = self._up.wait(60)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"ringline up does not stop:\n{self.log()}") from None
        self._up = None
        _, alive = psutil.wait_procs(children, timeout=5)
        assert alive == [], "processes left"
        assert not self.home.memory.exists() or not list(self.home.memory.iterdir()), "shared memory left"
        assert list((self.home.home / "run").iterdir()) == [], "sockets left"
        return code

    def close(self) -> None:
        try:
            self.stop()
        finally:
            if self._up is not None and self._up.poll() is None:
                self._up.kill()
            self._client.disconnect()
            self._client.loop_stop()

    def status(self) -> StatusReply | None:
        try:
            return ask_status(self._settings, 2.0)
        except RinglineError:
            return None

    def wait_alive(self) -> None:
        def alive() -> bool:
            assert self._up is not None
            assert self._up.poll() is None, f"ringline up has ended:\n{self.log()}"
            reply = self.status()
            return reply is not None and not missing(reply)

        wait_for(alive, "the four services")

    def pid(self, service: str) -> int:
        assert self._up is not None
        for child in psutil.Process(self._up.pid).children():
            if f"services.{service}" in child.cmdline():
                return child.pid
        raise AssertionError(f"{service} does not run")

    def kill(self, service: str, number: int = signal.SIGKILL) -> int:
        """Signal a service; returns the pid it had."""
        pid = self.pid(service)
        os.kill(pid, number)
        return pid

    def publish(self, line: str, alarm: dict[str, Any] | str) -> None:
        payload = alarm if isinstance(alarm, str) else json.dumps(alarm, ensure_ascii=False)
        self._client.publish(f"plant/{line}/alarm", payload, qos=1).wait_for_publish(PATIENCE_S)

    def answers(self, line: str) -> list[dict[str, Any]]:
        return [json.loads(raw) for topic, raw in list(self._messages) if topic == f"plant/{line}/answer"]

    def streamed(self, line: str) -> list[dict[str, Any]]:
        return [
            json.loads(raw) for topic, raw in list(self._messages) if topic == f"plant/{line}/answer/stream"
        ]

    def answer(self, line: str, count: int = 1) -> dict[str, Any]:
        """The `count`th answer on that line."""
        wait_for(lambda: len(self.answers(line)) >= count, f"answer {count} on {line}", self.log)
        return self.answers(line)[count - 1]

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-8000:] if self._log.exists() else ""

    def _connect(self, port: int) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, f"plant-{os.getpid()}", protocol=paho.MQTTv5)
        client.on_connect = lambda client, *_: client.subscribe("plant/#", 1)
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.on_message = lambda _c, _u, m: self._messages.append((m.topic, bytes(m.payload)))
        client.connect("127.0.0.1", port)
        client.loop_start()
        assert self._subscribed.wait(10)
        return client
