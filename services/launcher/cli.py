"""The `ringline` command."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from services.launcher import demo as plant_demo
from services.launcher.lock import sole_launcher
from services.launcher.pool import show_pool
from services.launcher.process_table import processes
from services.launcher.status import EXPECTED, ask_pool, ask_status, missing, show
from services.launcher.supervisor import Supervisor
from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.service import EXIT_REFUSED
from shared.model.cli import app as models

app = typer.Typer(
    help="Plant alarms in over MQTT, diagnoses out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(models, name="models", help="Models: list, fetch, verify.")

Config = Annotated[Path, typer.Option("--config", help="The plant's ringline.toml.")]


def main() -> None:
    """Entry point: whatever the user can mend is one line on stderr and exit code 2."""
    try:
        app()
    except RinglineError as error:
        print(f"ringline: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)


@app.command()
def up(config: Config) -> None:
    """Start the plant's services here and keep them running until SIGTERM or Ctrl-C."""
    settings = load_settings(config)
    supervisor = Supervisor(processes(settings), config.absolute(), settings.launcher, _report)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    with sole_launcher(settings.paths):
        code = supervisor.run(stop)
    sys.exit(code)


@app.command()
def status(
    config: Config,
    service: Annotated[str | None, typer.Option(help="Only say whether this one is alive.")] = None,
) -> None:
    """Show what is alive. Exit code 1 when a service is not."""
    if service is not None and service not in EXPECTED:
        raise RinglineError(f'no service is named "{service}"; there are {", ".join(EXPECTED)}')
    reply = ask_status(load_settings(config))
    absent = missing(reply, EXPECTED if service is None else (service,))
    if service is None:
        show(reply, Console())
    if absent:
        print(f"ringline: not alive: {', '.join(absent)}", file=sys.stderr)
        sys.exit(1)


@app.command()
def pool(
    config: Config,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show the K/V pool: geometry, whose the blocks are, the prefix cache, the sequences."""
    reply = ask_pool(load_settings(config))
    if as_json:
        print(reply.model_dump_json(indent=2))
    else:
        show_pool(reply, Console())


@app.command()
def check(config: Config) -> None:
    """Validate a configuration file."""
    settings = load_settings(config)
    print(f"{config}: valid; {len(settings.profiles)} profiles, {len(settings.routes)} routes")


def _mount(command: Callable[..., object]) -> None:
    app.command(name="demo")(command)


def _report(line: str) -> None:
    print(f"ringline up: {line}", file=sys.stderr, flush=True)


_mount(plant_demo.demo)
