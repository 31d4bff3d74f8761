"""`ringline lexicon`: making the file that draft.lexicon names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shared.config.errors import RinglineError
from shared.config.logging import configure_logging
from shared.config.settings import Log
from shared.lexicon.build import build
from shared.lexicon.file import MAX_TOKENS, write_lexicon
from shared.lexicon.texts import passages
from shared.model.cli import Config, Data, chosen_paths, one_line_errors
from shared.model.open import open_model

TOKENS = 131_072

app = typer.Typer(help="The plant's lexicon: build it from its texts.", no_args_is_help=True)


@app.callback()
def _configure() -> None:
    configure_logging(Log(format="console"), "lexicon")


@app.command("build")
def build_(
    inputs: Annotated[list[Path], typer.Argument(help="Texts: .txt .md .log .csv .tsv .json .jsonl")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    model: Annotated[str, typer.Option("--model", help="The target model: its vocabulary is used.")],
    tokens: Annotated[
        int, typer.Option("--tokens", min=64, max=MAX_TOKENS, help="Tokens at most; 8 bytes of memory each.")
    ] = TOKENS,
    config: Config = None,
    data: Data = None,
) -> None:
    """Build a lexicon from alarm texts, code tables, manuals and earlier answers."""
    with one_line_errors():
        if out.resolve() in {path.resolve() for path in inputs}:
            raise RinglineError(f"{out}: --out is one of the inputs; it would be lost, name another file")
        file = open_model(model, chosen_paths(config, data))
        texts = (passage for path in inputs for passage in passages(path))
        built = build(texts, file.tokenizer().encode, tokens)
        if not built.passages:
            raise RinglineError("the inputs hold no text that could be drafted from; give other files")
        write_lexicon(out, built.passages, file.info.name, file.info.vocabulary_hash)
        typer.echo(f"{out}: {len(built.passages)} passages, {built.tokens} tokens, for {file.info.name}")
        if built.left_out:
            typer.echo(
                f"{built.left_out} passages found least often are left out; for more give --tokens", err=True
            )
