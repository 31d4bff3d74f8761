"""A chat template is foreign code: whatever it does, there is a text or one clear line, and soon."""

from __future__ import annotations

import pytest

from shared.config.errors import RinglineError
from shared.model import template as template_module
from shared.model.template import MAX_RENDERED, render_template

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
MESSAGES = [{"role": "user", "content": "hello"}]


def render(template: str) -> str:
    return render_template("tiny", template, MESSAGES)


def test_trim_blocks_and_the_usual_variables_are_there() -> None:
    template = (
        "{% for m in messages %}\n<{{ m.role }}>{{ m['content'] }}\n{% endfor %}{{ add_generation_prompt }}"
    )
    assert render(template) == "<user>hello\nTrue"


@pytest.mark.parametrize(
    "endless",
    [
        LOOPS,
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ 7 ** (7 ** 9) }}",
    ],
    ids=["loops", "macros", "power"],
)
def test_a_template_without_end_is_ended(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "_CPU_S", 1)
    with pytest.raises(RinglineError, match=r"tiny: the chat template .* takes more than 1 s"):
        render(endless)


def test_a_template_is_waited_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the processor's time does not pass."""
    monkeypatch.setattr(template_module, "_WALL_S", 0.01)
    with pytest.raises(RinglineError, match="not rendered after"):
        render("hello")


@pytest.mark.parametrize(
    "large",
    [
        "{{ 'x' * 10**10 }}",
        "{{ 'x'.ljust(10**10) }}",
        "{{ '%10000000000d' | format(1) }}",
        "{{ 'x'.zfill(99999) }}",
    ],
)
def test_a_template_that_takes_much_memory_is_refused(large: str) -> None:
    with pytest.raises(
        RinglineError, match=f"MemoryError|too much memory|more than {MAX_RENDERED} characters"
    ):
        render(large)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("{% for", "fails"),
        ("{{ raise_exception('no\nsystem\x1b prompt' ~ 'x' * 999) }}", r"no\\nsystem\\x1b prompt"),
        ("{{ ''.__class__.__mro__ }}", "unsafe|access"),
        ("{{ messages.append(1) }}", "unsafe|safely"),
        ("{{ nothing.at.all }}", "undefined"),
    ],
)
def test_a_template_that_fails_is_one_short_line(wrong: str, said: str) -> None:
    with pytest.raises(RinglineError, match=said) as caught:
        render(wrong)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
