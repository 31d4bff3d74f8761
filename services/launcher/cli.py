"""The `ringline` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from services.launcher import demo as plant_demo
from services.launcher.check import check_plant
from services.launcher.container_health import end_if_hung
from services.launcher.lock import sole_launcher
from services.launcher.machine import check_machine
from services.launcher.pool import show_pool
from services.launcher.process_table import processes
from services.launcher.status import EXPECTED, NotAlive, ask_pool, ask_status, missing, show
from services.launcher.supervisor import Supervisor
from services.launcher.watchdog import Watchdog
from shared.bus.endpoints import Endpoints
from shared.bus.messages.status import StatusReply
from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.service import EXIT_REFUSED
from shared.config.settings import Settings
from shared.config.signals import stop_event
from shared.config.stderr import outlive_stderr
from shared.kv import remove_unowned
from shared.lexicon.cli import app as lexicon
from shared.model.cli import app as models

app = typer.Typer(
    help="Plant alarms in over MQTT, diagnoses out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(models, name="models", help="Models: list, fetch, verify.")
app.add_typer(lexicon, name="lexicon", help="The plant's lexicon: build it from its texts.")

EXIT_NOT_ALIVE = 1
Config = Annotated[Path, typer.Option("--config", help="The plant's ringline.toml.")]


def main() -> None:
    """Entry point: whatever the user can mend is one line on stderr and exit code 2; 1 when nothing runs."""
    try:
        app()
    except RinglineError as error:
        print(f"ringline: {error}", file=sys.stderr)
        sys.exit(EXIT_NOT_ALIVE if isinstance(error, NotAlive) else EXIT_REFUSED)


@app.command()
def up(config: Config) -> None:
    """Start the plant's services here and keep them running until SIGTERM, SIGHUP or Ctrl-C."""
    outlive_stderr()
    settings = _load_checked(config)
    stop = stop_event()
    with (
        sole_launcher(settings.paths),
        closing(Watchdog(Endpoints.of(settings.paths), settings.launcher.hang_s)) as watchdog,
    ):
        table, limits = processes(settings), settings.launcher
        code = Supervisor(table, config.absolute(), limits, _report, watchdog.hung).run(stop)
        if code == 0:  # not after a failure: then the sessions stay for the next start
            remove_unowned(settings.paths.memory)
    sys.exit(code)


@app.command()
def status(
    config: Config,
    service: Annotated[str | None, typer.Option(help="Only say whether this one is alive.")] = None,
    end_hung: Annotated[
        bool, typer.Option("--end-hung", help="With --service, in a container: kill it when it has hung.")
    ] = False,
) -> None:
    """Show what is alive. Exit code 0: all of it; 1: a service is not, or nothing runs at all."""
    if service is not None and service not in EXPECTED:
        raise RinglineError(f'no service is named "{service}"; there are {", ".join(EXPECTED)}')
    settings = load_settings(config)
    reply = _status_of(settings, service if end_hung else None)
    absent = missing(reply, EXPECTED if service is None else (service,))
    if service is None:
        show(reply, Console())
    if absent:
        print(f"ringline: not alive: {', '.join(absent)}", file=sys.stderr)
        sys.exit(EXIT_NOT_ALIVE)


def _status_of(settings: Settings, watched: str | None) -> StatusReply:
    """Context's answer; NotAlive when it gives none, or when the watched service had to be killed."""
    try:
        reply = ask_status(settings)
    except NotAlive:
        _end_if_hung(settings, watched, None)
        raise
    _end_if_hung(settings, watched, reply)
    return reply


def _end_if_hung(settings: Settings, watched: str | None, reply: StatusReply | None) -> None:
    why = None if watched is None else end_if_hung(settings, watched, reply)
    if why is not None:
        raise NotAlive(f"{watched} {why}; killed")


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
    """Validate a configuration file, on the machine that is to run it."""
    settings = _load_checked(config)
    with _errors_of(config):
        hints = check_machine(settings)
    for hint in hints:
        print(f"{config}: still to do: {hint}")
    print(f"{config}: valid; {len(settings.profiles)} profiles, {len(settings.routes)} routes")


def _load_checked(config: Path) -> Settings:
    settings = load_settings(config)
    with _errors_of(config):
        check_plant(settings)
    return settings


@contextmanager
def _errors_of(config: Path) -> Iterator[None]:
    """What is wrong is wrong in that file."""
    try:
        yield
    except RinglineError as error:
        raise RinglineError(f"{config}: {error}") from None


def _mount(command: Callable[..., object]) -> None:
    app.command(name="demo")(command)


def _report(line: str) -> None:
    print(f"ringline up: {line}", file=sys.stderr, flush=True)


_mount(plant_demo.demo)
