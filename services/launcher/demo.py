"""`ringline demo`: a small plant with its alarms, answered by the real services on this machine."""

from __future__ import annotations

import queue
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.live import Live

from services.launcher.demo_alarms import AlarmBook, DemoAlarm, DemoLine, PlantClient, read_alarms
from services.launcher.demo_plant import (
    RunningPlant,
    demo_files,
    prepare_models,
    running_plant,
    scratch_directories,
    write_config,
)
from services.launcher.demo_show import finished_answer, make_console, memory_of, streaming_answers, summary
from shared.config.errors import RinglineError
from shared.config.signals import stop_on_signals
from shared.model.report import default_report

_SILENCE_S = 180.0  # without any message from the gateway
_TURN_S = 0.1


def demo(
    model: Annotated[str, typer.Option(help="Target model, a name of the catalogue.")] = "qwen2.5-coder-1.5b",
    data: Annotated[Path, typer.Option(help="Where models and logs are kept.")] = Path(".ringline"),
) -> None:
    """Answer a small plant's alarms: fetch the models, start everything, show answers and figures."""
    stop_on_signals(_leave)
    data = data.absolute()
    console = make_console()
    book = read_alarms(demo_files() / "alarms.jsonl")
    draft = prepare_models(model, data, default_report())
    with scratch_directories(data) as (runtime, memory):
        config = write_config(model, draft, data, runtime, memory)
        console.print(
            f"starting the plant with {model}; its log: {config.with_name('services.log')}", style="dim"
        )
        with running_plant(config) as plant:
            _answer_all(plant, book, console)
    failed = [alarm for alarm in book.alarms if alarm.answer is None or "error" in alarm.answer]
    if failed:
        raise RinglineError(f"{len(failed)} alarms have no answer; see {config.with_name('services.log')}")


def _leave(_number: int, _frame: object) -> NoReturn:
    """End through the context managers, which stop the plant."""
    sys.exit(130)


def _answer_all(plant: RunningPlant, book: AlarmBook, console: Console) -> None:
    client = PlantClient(plant.settings.mqtt.port)
    try:
        started = time.monotonic()
        messages: list[DemoAlarm | DemoLine] = [*book.lines, *book.alarms]
        for message in messages:
            client.publish(message)
        _show(plant, book, client, console)
        seconds = time.monotonic() - started
        memory = memory_of(plant.supervisor.pids())
        console.print(summary(book, plant.status(), memory, seconds))
    finally:
        client.close()


def _show(plant: RunningPlant, book: AlarmBook, client: PlantClient, console: Console) -> None:
    """Until every alarm has its answer. RinglineError when the plant ends or falls silent."""
    heard = time.monotonic()
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        while book.open:
            plant.check()
            try:
                arrived = client.arrived.get(timeout=_TURN_S)
            except queue.Empty:
                if time.monotonic() - heard > _SILENCE_S:
                    raise RinglineError(f"no answer for {_SILENCE_S:.0f} s; see {plant.log}") from None
                continue
            heard = time.monotonic()
            alarm = book.take(arrived)
            if alarm is not None:
                console.print(finished_answer(alarm))
            live.update(streaming_answers(book))
