"""A model's chat template, with contents that stay plain text whatever is written in them.

The template comes from the model file and is rendered once per model (`template.py`), with markers in the
places of the contents. The pieces around the markers are the template's own text, in which control tokens are
tokens; the contents are tokenised as plain text and put between. So `<|im_end|>` in an alarm is ten
characters like any others, and the tokens in front of an alarm are the same for every alarm of a profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from shared.config.errors import RinglineError
from shared.model.architecture import MAX_TEMPLATE
from shared.model.open import ModelInfo
from shared.model.template import render_template
from shared.model.tokenizer import Tokenizer

MAX_CONTENT = 1 << 20  # characters of one content

_SYSTEM = "RINGLINE-SYSTEM-CONTENT-5f1c"
_USER = "RINGLINE-USER-CONTENT-a93e"


@dataclass(frozen=True)
class ChatPrompt:
    """A prompt's token ids. `tokens` begins with `prefix`, which does not depend on the user's text."""

    prefix: list[int]
    tokens: list[int]


def render_chat(info: ModelInfo, tokenizer: Tokenizer, system: str, user: str) -> ChatPrompt:
    """The prompt that makes the model answer `user` under `system`.

    An empty `system` leaves it to the template, which may put in one of its own. RinglineError when the
    template cannot be rendered or has no place for a content.
    """
    if max(len(system), len(user)) > MAX_CONTENT:
        raise RinglineError(
            f"a prompt of more than {MAX_CONTENT} characters; shorten the system prompt or the text"
        )
    head, tail = _pieces(info.name, info.chat_template, bool(system))
    prefix = [token for piece in head for token in _piece_tokens(tokenizer, piece, system)]
    rest = tokenizer.encode(user) + tokenizer.encode_special(tail)
    return ChatPrompt(prefix, prefix + rest)


def _piece_tokens(tokenizer: Tokenizer, piece: str | None, system: str) -> list[int]:
    return tokenizer.encode(system) if piece is None else tokenizer.encode_special(piece)


@lru_cache(maxsize=8)
def _pieces(name: str, template: str, with_system: bool) -> tuple[tuple[str | None, ...], str]:
    """The template's text before the user's (None: the system prompt's place) and after it."""
    messages = [{"role": "user", "content": _USER}]
    if with_system:
        messages.insert(0, {"role": "system", "content": _SYSTEM})
    if len(template) > MAX_TEMPLATE or _USER in template or _SYSTEM in template:
        raise RinglineError(f"{name}: the chat template of the model file cannot be used; use another model")
    text = render_template(name, template, messages)
    if text.count(_USER) != 1:
        raise _no_place(name, "user")
    before, tail = text.split(_USER)
    if with_system and before.count(_SYSTEM) != 1:
        raise _no_place(name, "system")
    parts = before.split(_SYSTEM)
    head = (parts[0], None, parts[1]) if with_system else (before,)
    return head, tail


def _no_place(name: str, role: str) -> RinglineError:
    return RinglineError(
        f"{name}: its chat template has not exactly one place for a {role} message; use another model"
    )
