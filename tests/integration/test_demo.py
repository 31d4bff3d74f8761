"""The demonstration, and the broker that it brings along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.launcher.broker import check_broker
from services.launcher.demo_alarms import Arrived, read_alarms
from services.launcher.demo_plant import demo_files, write_config
from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.settings import Broker, Mqtt, Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def demo_dir(tmp_path: Path, data_dir: Path) -> Path:
    """A data directory of its own with the models that are here."""
    for name in ("models", "cache"):
        (data_dir / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(data_dir / name)
    return tmp_path


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where it makes its directory for sockets, with a short name; a killed one leaves that behind."""
    with tempfile.TemporaryDirectory(prefix="rl") as directory:
        yield Path(directory)


def start_demo(directory: Path, scratch: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "services.launcher", "demo", "--model", "smollm2-135m"]
    return subprocess.Popen(
        [*command, "--data", str(directory)],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_demonstration_answers_every_alarm_and_ends_by_itself(demo_dir: Path, scratch: Path) -> None:
    """Exit code 0, the table, the answers; no process and no directory of it is left."""
    demo = start_demo(demo_dir, scratch)
    output, _ = demo.communicate(timeout=280)
    assert demo.returncode == 0, output
    for part in (
        "20 of 20",
        "tokens/s",
        "accepted draft tokens per pass",
        "publish to first token (ttft_ms)",
        "of which waiting (queued_ms)",
        "blocks used",
    ):
        assert part in output
    for service in ("broker", "context", "verifier", "draft", "gateway"):
        assert f"memory of {service}" in output
    assert not list(Path("/dev/shm").glob(f"ringline-demo-{demo.pid}"))
    assert list(scratch.iterdir()) == []


def test_an_interrupted_demonstration_takes_its_processes_with_it(demo_dir: Path, scratch: Path) -> None:
    """SIGTERM while it answers; also SIGKILL, which the kernel passes on."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        demo = start_demo(demo_dir, scratch)
        children: list[psutil.Process] = []
        deadline = time.monotonic() + 120
        while len(children) < 5 and time.monotonic() < deadline:
            children = psutil.Process(demo.pid).children()
            time.sleep(0.1)
        assert len(children) == 5
        demo.send_signal(number)
        demo.communicate(timeout=60)
        assert demo.returncode != 0
        _, alive = psutil.wait_procs(children, timeout=20)
        assert alive == []
        for left in Path("/dev/shm").glob(f"ringline-demo-{demo.pid}"):
            assert number == signal.SIGKILL
            for file in left.iterdir():
                file.unlink()
            left.rmdir()


def test_the_demonstration_leaves_a_plants_journal_and_history_alone(demo_dir: Path) -> None:
    """The README lets a plant use its data directory, for the models that are there."""
    (demo_dir / "draft").mkdir()
    for name in ("journal.db", "journal.db-wal", "draft/history-1.bin"):
        (demo_dir / name).write_text("alarms")
    for _ in range(2):
        config = write_config("smollm2-135m", None, demo_dir, Path("/run/demo"), Path("/dev/shm/demo"))
        own = load_settings(config).paths
        assert (own.models.resolve(), own.cache.resolve()) == (
            (demo_dir / "models").resolve(),
            (demo_dir / "cache").resolve(),
        )
        (own.data / "journal.db").write_text("of the demonstration")
    assert (demo_dir / "journal.db").read_text() == "alarms"
    assert (demo_dir / "journal.db-wal").exists()
    assert (demo_dir / "draft/history-1.bin").exists()


def test_every_alarm_of_the_set_finds_its_answer() -> None:
    """By id, or by topic when it has none; one is GBK."""
    book = read_alarms(demo_files() / "alarms.jsonl")
    assert len(book.alarms) == 20
    assert {line.topic for line in book.lines} == {"plant/en/boiler-2/log"}
    for alarm in book.alarms:
        topic = alarm.topic.removesuffix("/alarm") + "/answer"
        payload = {"id": alarm.alarm_id or "made-by-the-gateway", "text": "x", "index": 0}
        assert book.find(Arrived(topic, payload)) is alarm
        assert book.take(Arrived(topic + "/stream", payload)) is None
        assert alarm.text == "x"
        assert book.take(Arrived(topic, payload)) is alarm
    assert book.open == []
    raw = [alarm.payload for alarm in book.alarms]
    assert any("熄火".encode("gbk") in payload for payload in raw)


def test_the_embedded_broker_says_what_it_cannot_do() -> None:
    """Not loopback, MQTT 5, a taken port: one line each."""
    old = Mqtt(version="3.1.1")
    with pytest.raises(RinglineError, match="only loopback"):
        check_broker(Settings(broker=Broker(host="0.0.0.0", port=18999), mqtt=old))
    with pytest.raises(RinglineError, match=r'mqtt\.version = "3\.1\.1"'):
        check_broker(Settings(broker=Broker(port=18999)))
