"""`ringline check` on the machine that is to run the plant: is what the configuration needs here?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from shared.config.credentials import read_password, tls_context
from shared.config.errors import RinglineError
from shared.config.settings import Draft, Settings, Verifier
from shared.model.catalogue import known
from shared.model.open import locate
from shared.native import isa_names


def check_machine(settings: Settings) -> list[str]:
    """What is still to be done here, one line each. RinglineError names the key of what cannot work here."""
    _check_threads("verifier", settings.verifier)
    _check_threads("draft", settings.draft)
    read_password(settings.mqtt)
    tls_context(settings.mqtt)
    return [*_missing_models(settings), *_missing_lexicon(settings)]


def _check_threads(section: str, options: Verifier | Draft) -> None:
    usable = isa_names()
    if options.isa and options.isa not in usable:
        raise RinglineError(
            f'{section}.isa = "{options.isa}" is no instruction set of this machine; choose one of '
            f'{", ".join(usable)}, or "" for the best'
        )
    here = os.sched_getaffinity(0)
    absent = [] if options.affinity == "auto" else sorted(set(options.affinity) - here)
    if absent:
        raise RinglineError(
            f"{section}.affinity names CPU {absent[0]}, which cannot be used here; "
            f"there are {', '.join(map(str, sorted(here)))}"
        )


def _missing_models(settings: Settings) -> Iterator[str]:
    """A model of the catalogue can still be fetched; a path without a file is wrong."""
    for key, name in (("target", settings.models.target), ("draft", settings.models.draft)):
        if name is None:
            continue
        try:
            locate(name, settings.paths)
        except RinglineError as error:
            if known(name) is None:
                raise RinglineError(f'models.{key} = "{name}": {error}') from None
            yield f"models.{key}: {error}"


def _missing_lexicon(settings: Settings) -> Iterator[str]:
    path = settings.draft.lexicon
    if path is not None and not path.is_file():
        yield f"draft.lexicon: {path}: there is no such file; run `ringline lexicon build --out {path} …`"
