"""Reading the TOML file: every mistake becomes one line that names file, line, key and what to do."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from shared.config.errors import RinglineError
from shared.config.settings import Settings

MAX_BYTES = 1 << 20
Location = tuple[int | str, ...]


def load_settings(path: Path) -> Settings:
    """The validated settings in `path`; RinglineError for anything wrong with the file or its values."""
    text = _read(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RinglineError(f"{path}: not valid TOML: {error}") from None
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        raise RinglineError(_explain(path, text, error)) from None
    _check_references(path, text, settings)
    return settings


def config_hash(settings: Settings) -> str:
    """Digest of what must agree between the services of one plant.

    Models and shared memory decide what the bytes in the pool mean; the verifier's largest commit decides how
    far context reserves ahead. Profiles are not part of it: the gateway tells context about them, so a new
    prompt needs a restart of the gateway only.
    """
    agreed = {
        "models": settings.models.model_dump(mode="json"),
        "memory": str(settings.paths.memory),
        "context": settings.context.model_dump(mode="json"),
        "node_budget": settings.verifier.node_budget,
        "prefill_chunk": settings.verifier.prefill_chunk,
    }
    text = json.dumps(agreed, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RinglineError(f"{path}: cannot read the configuration: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise RinglineError(f"{path}: larger than {MAX_BYTES} bytes; is this the right file?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RinglineError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _check_references(path: Path, text: str, settings: Settings) -> None:
    """What one value demands of another; pydantic has seen each value alone."""

    def fail(location: Location, message: str) -> None:
        raise RinglineError(f"{path}:{_line_of(text, location)}: {message}")

    names = [profile.name for profile in settings.profiles]
    for index, name in enumerate(names):
        if name in names[:index]:
            fail(("profiles", index, "name"), f'profile "{name}" is defined twice; rename one')
    for index, route in enumerate(settings.routes):
        if route.profile not in names:
            known = ", ".join(names) or "none"
            fail(("routes", index, "profile"), f'no profile is named "{route.profile}" (known: {known})')
        if not route.answer and not route.stream:
            what = (
                f'routes[{index}] has neither "answer" nor "stream"; add an answer topic, a stream, or both'
            )
            fail(("routes", index), what)
    mqtt = settings.mqtt
    if (mqtt.tls_cert is None) != (mqtt.tls_key is None):
        key = "tls_cert" if mqtt.tls_key is None else "tls_key"
        fail(("mqtt", key), "mqtt.tls_cert and mqtt.tls_key belong together; set both or none")


def _explain(path: Path, text: str, error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    first = problems[0]
    location = tuple(first["loc"])
    where = f"{path}:{_line_of(text, location)}"
    key = _dotted(location)
    if first["type"] == "extra_forbidden":
        what = f'unknown key "{key}"{_suggestion(location)}'
    elif first["type"] == "missing":
        what = f'"{key}" is missing; add it'
    else:
        what = f'"{key}" = {_shown(first["input"])}: {first["msg"][:1].lower()}{first["msg"][1:]}'
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {what}{more}"


def _dotted(location: Location) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _suggestion(location: Location) -> str:
    """The nearest known key, or all of them, of the section that holds the unknown one."""
    section: Any = Settings
    for part in location[:-1]:
        if isinstance(part, str):
            section = section.model_fields[part].annotation
            section = next((arg for arg in get_args(section) if isinstance(arg, type)), section)
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return ""
    known = sorted(section.model_fields)
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f'; did you mean "{near[0]}"?' if near else f"; known here: {', '.join(known)}"


def _line_of(text: str, location: Location) -> int:
    """Line (from 1) on which the value at `location`, or what should hold it, begins.

    tomllib keeps no positions. A file cut after a line is valid TOML exactly when no value is open there, so
    the value starts behind the last valid cut that does not hold it yet. Quadratic, but only when it failed.
    """
    lines = text.splitlines(keepends=True)
    start, best, depth = 1, 1, 0
    for end in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        found = _depth(data, location)
        if found > depth:
            best, depth = start, found
        if depth == len(location):
            return best
        start = end + 1
    return best


def _depth(data: object, location: Location) -> int:
    """How many parts of `location` exist in `data`."""
    for depth, part in enumerate(location):
        try:
            data = data[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(location)
