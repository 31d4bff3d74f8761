"""Rendering a model's chat template: foreign code, so a process of its own does it within kernel limits.

Jinja's sandbox keeps a template away from Python's objects, but not from time and memory: nested loops,
macros that call each other and `'x'.ljust(10**10)` are all allowed. So the process gets seconds and
megabytes, and one that needs more is ended. A service asks for a rendering or two in its life.
"""

from __future__ import annotations

import json
import subprocess
import sys

from shared.config.errors import RinglineError
from shared.config.quote import one_line

MAX_RENDERED = 1 << 16  # characters

_CPU_S = 5  # a template of today takes a few milliseconds; starting Python and Jinja takes the rest
_WALL_S = 60.0  # on a machine whose cores have other things to do


def render_template(name: str, template: str, messages: list[dict[str, str]]) -> str:
    """What model `name`'s template makes of the conversation `messages`, at most MAX_RENDERED characters.

    RinglineError when the template is wrong, refuses the conversation or needs too much time or memory.
    """
    command = [sys.executable, "-m", "shared.model.template_process", str(_CPU_S), str(MAX_RENDERED)]
    request = json.dumps({"template": template, "messages": messages}).encode()
    try:
        # A session of its own: Ctrl-C is for the service, which ends in its own time.
        result = subprocess.run(
            command, input=request, capture_output=True, timeout=_WALL_S, start_new_session=True
        )
    except subprocess.TimeoutExpired:
        raise _failure(name, f"it is not rendered after {_WALL_S:.0f} s") from None
    except OSError as error:
        raise RinglineError(f"{sys.executable}: cannot be started: {error.strerror}") from None
    if result.returncode < 0:
        raise _failure(name, f"it takes more than {_CPU_S} s or too much memory")
    try:
        answer = json.loads(result.stdout)
        text, error_text = answer.get("text"), answer.get("error")
    except ValueError:
        raise _failure(name, one_line(result.stderr.decode(errors="replace")[-200:], 200)) from None
    if not isinstance(text, str):
        raise _failure(name, one_line(str(error_text), 200))
    return text


def _failure(name: str, what: str) -> RinglineError:
    return RinglineError(f"{name}: the chat template of the model file fails: {what}; use another model")
