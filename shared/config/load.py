"""Reading the TOML file: every mistake becomes one line that names file, line, key and what to do."""

from __future__ import annotations

import bisect
import difflib
import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from shared.config.errors import RinglineError
from shared.config.quote import one_line, quoted, shown
from shared.config.settings import Settings

MAX_BYTES = 1 << 20
Location = tuple[int | str, ...]


def load_settings(path: Path) -> Settings:
    """The validated settings in `path`; RinglineError for anything wrong with the file or its values."""
    text = _read(path)
    data = _parse(path, text)
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


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise RinglineError(f"{path}: not valid TOML: lists or tables are nested too deeply") from None
    except ValueError as error:  # a TOMLDecodeError, or a number that is too long for Python
        what, at, where = str(error).partition(" (at ")
        raise RinglineError(f"{path}: not valid TOML: {one_line(what, 100)}{at}{where}") from None


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
            fail(
                ("routes", index, "profile"), f"no profile is named {quoted(route.profile)} (known: {known})"
            )
        if not route.answer and not route.stream:
            fail(
                ("routes", index),
                f'routes[{index}] has neither "answer" nor "stream"; add an answer topic, a stream, or both',
            )
    mqtt = settings.mqtt
    if (mqtt.tls_cert is None) != (mqtt.tls_key is None):
        key = "tls_cert" if mqtt.tls_key is None else "tls_key"
        fail(("mqtt", key), "mqtt.tls_cert and mqtt.tls_key belong together; set both or none")
    if mqtt.password_file is not None and mqtt.username is None:
        message = "mqtt.password_file is set without mqtt.username: the password would not be used"
        fail(("mqtt", "password_file"), message)


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
        what = f'"{key}" = {shown(first["input"])}: {_lowered(first["msg"])}'
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {what}{more}"


def _dotted(location: Location) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return one_line(text.removeprefix("."), 100)


def _lowered(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


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


# Whatever can hold a line break or a bracket that is none, then brackets and line breaks themselves.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[{\]}\n]",
    re.DOTALL,
)


def _line_of(text: str, location: Location) -> int:
    """Line (from 1) on which the value at `location`, or what should hold it, begins.

    tomllib keeps no positions. But the file is valid, so it is also valid when it is cut behind a statement,
    and each cut holds what the cuts before it hold: the first one that holds the value ends with it.
    """
    text = text.replace("\r\n", "\n")
    starts = _statements(text)
    found = _depth(tomllib.loads(text), location)
    index = bisect.bisect_left(
        range(len(starts) - 1), found, key=lambda i: _depth(tomllib.loads(text[: starts[i + 1]]), location)
    )
    return text.count("\n", 0, starts[index]) + 1


def _statements(text: str) -> list[int]:
    """Where the statements of a valid file begin: headers, pairs, comments; an empty line belongs to the one
    before."""
    starts, depth = [0], 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            starts.append(token.end())
    return starts


def _depth(data: object, location: Location) -> int:
    """How many parts of `location` exist in `data`."""
    for depth, part in enumerate(location):
        try:
            data = data[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(location)
