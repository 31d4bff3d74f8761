"""Whatever is in the configuration file: settings, or one short line. Never a traceback, never for ever."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.config.errors import RinglineError
from shared.config.load import load_settings
from shared.config.settings import Settings
from tests.unit.config_file import ONE_ROUTE, outcome

VALUES = [
    *("-1", "0", "1", "2.5", "1e400", "nan", "inf", "true", "1979-05-27", "07:32:00", "9223372036854775808"),
    *('""', '"x"', '["a"]', '"\\u0000"', '"a\\nb\\u001b[31m"', '"/tmp/\\u0000x"', '"/tmp/a\\nb"'),
    *("[]", "{}", "[1]", "{a=1}", "[[[]]]", "[-1]", '["retrieval","retrieval"]', "[99999999999999999999]"),
]
LONG = [
    '"' + "a" * 5000 + '"',
    '"/' + "a" * 300 + '"',
    "1" * 5000,
    "0x" + "f" * 5000,
    "[" + "0," * 5000 + "]",
]
DEEP = ["[" * 1000, "[" * 1000 + "]" * 1000, "{a=" * 5000, "[" * 100 + "]" * 100, "{a=" * 90 + "1" + "}" * 90]


def sections() -> dict[str, list[str]]:
    """Every section with its keys."""
    found = {}
    for name, field in Settings.model_fields.items():
        kind: Any = field.annotation
        kind = next((arg for arg in get_args(kind) if isinstance(arg, type)), kind)
        found[name] = list(kind.model_fields)
    return found


@pytest.mark.parametrize("section", sections())
def test_any_value_of_any_key_is_taken_or_refused_in_one_line(tmp_path: Path, section: str) -> None:
    header = f"[[{section}]]" if section in ("profiles", "routes") else f"[{section}]"
    for value in VALUES + LONG + DEEP:
        outcome(tmp_path, f"{section} = {value}\n{ONE_ROUTE}")
        for key in sections()[section]:
            outcome(tmp_path, f"{ONE_ROUTE}\n{header}\n{key} = {value}\n")


@pytest.mark.parametrize("value", [DEEP[0], DEEP[1], DEEP[2]], ids=["open", "closed", "tables"])
def test_nesting_beyond_reason_is_said(tmp_path: Path, value: str) -> None:
    assert outcome(tmp_path, f"a = {value}").startswith(": not valid TOML: ")
    assert "nested too deeply" in outcome(tmp_path, f"a = {value}")


def test_a_number_with_thousands_of_digits_is_one_line(tmp_path: Path) -> None:
    assert outcome(tmp_path, "[context]\npool_mb = " + "1" * 5000).startswith(": not valid TOML: ")
    assert "a number of 20000 bits" in outcome(tmp_path, "[context]\npool_mb = 0x" + "f" * 5000)


def test_dotted_keys_may_go_deep(tmp_path: Path) -> None:
    """The table that is refused is deeper than repr() can go."""
    assert '"context.pool_mb" = a table of 1' in outcome(tmp_path, "context.pool_mb." + "a." * 5000 + "b = 1")


@pytest.mark.parametrize(
    "text",
    [
        '"\\nringline: all is well\\u001b[31m" = 1\n',
        '[mqtt]\n"b\\nc" = 1\n',
        ONE_ROUTE.replace('profile = "en"', 'profile = "zz\\nq\\u001b[2J"'),
        ONE_ROUTE.replace('name = "en"', 'name = "zz\\nq\\u001b[2J"'),
        '["' + "k" * 100_000 + '"]\na = 1\n',
        ONE_ROUTE + "[x.y]\n[x.y]\n",
        '["a\\nb"]\n["a\\nb"]\n',
    ],
    ids=[
        "key",
        "key of a section",
        "profile",
        "name",
        "long key",
        "declared twice",
        "controls declared twice",
    ],
)
def test_foreign_text_is_quoted_and_cut(tmp_path: Path, text: str) -> None:
    assert outcome(tmp_path, text)


def test_the_files_name_stays_on_the_line_too(tmp_path: Path) -> None:
    with pytest.raises(RinglineError) as caught:
        load_settings(tmp_path / "a\nringline: all is well")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ('[paths]\nruntime = "/tmp/\\u0000"', "control character U+0000"),
        ('[paths]\nmemory = "/tmp/a\\nb"', "control character U+000A"),
        (f'[paths]\ndata = "/tmp/{"a" * 300}"', "at most 255 bytes"),
        (f'[paths]\ndata = "/tmp/{"报" * 90}"', "at most 255 bytes"),
        (f'[paths]\ndata = "{"/abc" * 1100}"', "at most 4095 bytes"),
        ('[mqtt]\npassword_file = "/tmp/\\u0000"', "control character U+0000"),
        ('[mqtt]\ntls_ca = "/tmp/\\u0000"', "control character U+0000"),
        ('[mqtt]\nhost = "a\\u0000"', "control character U+0000"),
        ('[mqtt]\nhost = ""', "at least 1 character"),
        ('[models]\ntarget = "/tmp/\\u0000.gguf"', "control character U+0000"),
        ('[models]\ntarget = ""', "at least 1 character"),
        ("[verifier]\naffinity = [99999999999999999999]", "each below 8192"),
        (f"[draft]\naffinity = {[0] * 65}", "at most 64"),
        ("[verifier]\nmax_wait_ms = nan", "finite number"),
        ("[launcher]\nrestart_window_s = inf", "finite number"),
        ("[launcher]\nrestarts = 99999999999999999999", "less than or equal to"),
        ("[gateway]\njournal_max_alarms = 99999999999999999999", "less than or equal to"),
    ],
)
def test_what_no_service_could_use_is_refused_with_its_line(tmp_path: Path, setting: str, why: str) -> None:
    message = outcome(tmp_path, setting)
    assert message.startswith(":2: ")
    assert why in message


def test_a_large_file_with_a_late_mistake_is_not_read_once_for_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    def loads(text: str) -> dict[str, Any]:
        nonlocal count
        count += 1
        return parse(text)

    parse = tomllib.loads
    monkeypatch.setattr(tomllib, "loads", loads)
    system = '"""' + "line\n" * 6000 + '"""'
    text = ONE_ROUTE.replace('"x"', system) + "# comment\n" * 5000 + "[context]\npool_mb = 0\n"
    assert outcome(tmp_path, text).startswith(f":{len(text.splitlines())}: ")
    assert count < 20


_lines = st.sampled_from(
    [
        *("", "b = [", "1, # ]", "]", 'c = """', "[ ''' \\\\", '"""', "d = '''x", "'''", "'k' = 1", "[t]"),
        *("e = { f = 1 }", "[[u]]", 'a = "#["', 'm = """a""""', '"""""', "n = ''''x'''''", 'o = "\\\\"'),
        '# [ """ \' {',
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(_lines, max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_the_line_is_the_one_of_the_mistake(tmp_path: Path, before: list[str], end: str) -> None:
    """Whatever valid lines are before it."""
    text = end.join([*before, "[context]", "max_waiting = 1", "pool_mb = 0", ""])
    message = outcome(tmp_path, text)
    if "context.pool_mb" in message:
        assert message.startswith(f":{len(before) + 3}: ")
