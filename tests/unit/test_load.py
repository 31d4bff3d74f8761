"""A mistake in the configuration is one line: file, line, key, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.errors import RinglineError
from shared.config.load import config_hash, load_settings
from shared.config.settings import MAX_PROFILES, Settings
from tests.unit.config_file import ONE_ROUTE, problem, write

GOOD = (
    '''
[paths]
runtime = "/run/a"

[[profiles]]
name = "zh"
language = "zh"
system = """
第一行
not_a_key = 1
"""

'''
    + ONE_ROUTE
)


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    assert [profile.name for profile in load_settings(write(tmp_path, GOOD)).profiles] == ["zh", "en"]


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "")) == Settings()


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_one(tmp_path: Path) -> None:
    message = problem(tmp_path, "[verifier]\nthreads = 2\n\n# a comment\nnode_buget = 3\n")
    assert message == ':5: unknown key "verifier.node_buget"; did you mean "node_budget"?'


def test_an_unknown_section_lists_the_known_ones(tmp_path: Path) -> None:
    message = problem(tmp_path, "[paths]\n\n[zzz]\na = 1\n")
    assert message.startswith(':3: unknown key "zzz"; known here: broker, context')


def test_the_line_is_right_behind_multi_line_strings_and_in_lists_of_tables(tmp_path: Path) -> None:
    text = GOOD.replace('system = "x"', 'system = "x"\ncolour = "blue"')
    line = text.splitlines().index('colour = "blue"') + 1
    assert problem(tmp_path, text).startswith(f':{line}: unknown key "profiles[1].colour"; known here:')


def test_a_value_out_of_range_is_shown_with_its_limit(tmp_path: Path) -> None:
    message = problem(tmp_path, "[context]\npool_mb = 0\n")
    assert message == ':2: "context.pool_mb" = 0: input should be greater than or equal to 1'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("temperature = 6", "less than or equal to 5"),
        ("temperature = 0.001", "must be 0 (always the likeliest token) or at least 0.01"),
        ("temperature = nan", "should be a finite number"),
        ("top_p = 0", "greater than 0"),
        ("top_k = -1", "greater than or equal to 0"),
        ("repetition_penalty = 0", "greater than or equal to 0.5"),
        ("seed = -1", "greater than or equal to 0"),
        ('acceptance = "greedy"', "'match' or 'ratio'"),
        ('stop = [""]', "at least 1 character"),
        ('stop = ["\ufffd"]', "must not hold U+FFFD"),
        ("stop = [" + '"a", ' * 9 + "]", "at most 8 items"),
    ],
)
def test_sampling_out_of_range_is_refused_with_its_limit(tmp_path: Path, line: str, said: str) -> None:
    message = problem(tmp_path, GOOD.replace('system = "x"', f'system = "x"\n{line}'))
    assert f'"profiles[1].{line.split(" ")[0]}' in message
    assert said in message


def test_an_unknown_format_of_keys_and_values_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    message = problem(tmp_path, '[context]\nkv = "int4"\n')
    assert message == ":2: \"context.kv\" = \"int4\": input should be 'f16' or 'int8'"


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    assert '"routes[0].topic" is missing' in problem(tmp_path, GOOD.replace('topic = "plant/+/alarm"', ""))


def test_a_route_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    """A stream is enough, and so is an answer topic; without either a message would have no use."""
    without = GOOD.replace('answer = "plant/{1}/answer"', "")
    assert 'routes[0] has neither "answer" nor "stream"' in problem(tmp_path, without)


def test_a_route_to_no_profile_is_named(tmp_path: Path) -> None:
    text = GOOD.replace('profile = "en"', 'profile = "fr"')
    line = text.splitlines().index('profile = "fr"') + 1
    assert problem(tmp_path, text) == f':{line}: no profile is named "fr" (known: zh, en)'


def test_a_profile_defined_twice_is_refused(tmp_path: Path) -> None:
    assert 'profile "zh" is defined twice' in problem(tmp_path, GOOD.replace('name = "en"', 'name = "zh"'))


def test_a_client_without_an_id_is_refused(tmp_path: Path) -> None:
    """The broker would make one up for each connection, and keep no alarm while the gateway is away."""
    message = problem(tmp_path, '[mqtt]\nclient_id = ""\n')
    assert message == ':2: "mqtt.client_id" = "": string should have at least 1 character'


def test_a_password_without_its_user_is_refused(tmp_path: Path) -> None:
    """It would silently not be used."""
    message = problem(tmp_path, '[mqtt]\n\npassword_file = "/etc/password"\n')
    assert message.startswith(":3: mqtt.password_file is set without mqtt.username")


def test_broken_toml_says_where(tmp_path: Path) -> None:
    assert "line 2" in problem(tmp_path, "[paths]\nruntime = \n")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RinglineError, match="cannot read the configuration: No such file"):
        load_settings(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "raw", [b"\xff\xfe[paths]", b"# " + b"x" * (1 << 20)], ids=["not UTF-8", "too large"]
)
def test_a_file_that_cannot_be_a_configuration_is_one_line(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "ringline.toml"
    file.write_bytes(raw)
    with pytest.raises(RinglineError, match=r"UTF-8|larger than"):
        load_settings(file)


def test_the_hash_covers_what_must_agree_and_nothing_else() -> None:
    base = Settings()
    prompt = base.model_copy(update={"log": base.log.model_copy(update={"level": "debug"})})
    pool = base.model_copy(update={"context": base.context.model_copy(update={"pool_mb": 64})})
    chunk = base.model_copy(update={"verifier": base.verifier.model_copy(update={"prefill_chunk": 16})})
    assert config_hash(prompt) == config_hash(base)
    kv = base.model_copy(update={"context": base.context.model_copy(update={"kv": "int8"})})
    assert len({config_hash(each) for each in (base, pool, chunk, kv)}) == 4


def test_more_profiles_than_a_plant_has_room_for_are_refused(tmp_path: Path) -> None:
    def profiles(count: int) -> str:
        table = '[[profiles]]\nname = "p{}"\nlanguage = "en"\nsystem = "x"\n'
        return "[log]\n" + "".join(table.format(number) for number in range(count))

    message = problem(tmp_path, profiles(MAX_PROFILES + 1))
    assert message.startswith(':2: "profiles" = ')
    assert message.endswith("17 profiles are too many, 16 are allowed; remove some")
    assert len(load_settings(write(tmp_path, profiles(MAX_PROFILES))).profiles) == MAX_PROFILES
