"""A small valid configuration, and what is said of one that is not valid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shared.config.errors import RinglineError
from shared.config.load import load_settings

ONE_ROUTE = """
[[profiles]]
name = "en"
language = "en"
system = "x"

[[routes]]
topic = "plant/+/alarm"
profile = "en"
answer = "plant/{1}/answer"
"""


def write(directory: Path, text: str) -> Path:
    file = directory / "ringline.toml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return file


def outcome(directory: Path, text: str, load: Callable[[Path], object] = load_settings) -> str:
    """What the error says behind the file's name, "" when there is none. It is always one short line."""
    file = write(directory, text)
    try:
        load(file)
    except RinglineError as error:
        message = str(error)
        assert message.startswith(str(file))
        message = message.removeprefix(str(file))
        assert message.isprintable()
        assert len(message) < 600
        return message
    return ""


def problem(directory: Path, text: str, load: Callable[[Path], object] = load_settings) -> str:
    """The same of what must be refused."""
    message = outcome(directory, text, load)
    assert message, "nothing is said"
    return message
