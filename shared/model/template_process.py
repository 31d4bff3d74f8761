"""The process that renders one chat template: `python -m shared.model.template_process CPU_S MAX_CHARACTERS`.

Standard input: JSON with `template` and `messages`; standard output: JSON with `text` or `error`.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MEMORY = 512 << 20  # bytes of address space; Python and Jinja take 30 million


def main(cpu_s: int, limit: int) -> None:
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what ends it is expected
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    try:
        answer = {"text": render(request["template"], request["messages"], limit)}
    except Exception as error:  # whatever a template can raise: it is the model file's code, not ours
        answer = {"error": (str(error) or type(error).__name__)[:1000]}
    json.dump(answer, sys.stdout)


def render(template: str, messages: list[dict[str, str]], limit: int) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _raise_exception
    conversation: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
    text = ""
    for chunk in environment.from_string(template).generate(conversation):
        text += chunk
        if len(text) > limit:
            raise jinja2.TemplateError(f"more than {limit} characters come out of it")
    return text


def _raise_exception(message: str) -> NoReturn:
    """What templates call to refuse a conversation."""
    raise jinja2.TemplateError(message)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
