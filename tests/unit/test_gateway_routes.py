"""Filters, wildcards and answer topics: answers go where the configuration says and never come back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.payload import PayloadError
from services.gateway.routes import RouteTable, Target
from shared.config.errors import RinglineError
from shared.config.settings import Gateway, Route, Settings
from shared.config.stream_names import names_meet
from shared.config.topics import levels_of, match, overlap, substitute, topic_problem


def table(*routes: tuple[str, ...], dead: str = "dead") -> RouteTable:
    """Each route is topic, answer, and perhaps stream and profile."""
    keys = ("topic", "answer", "stream", "profile")
    made = tuple(Route(**{"profile": "p", **dict(zip(keys, route, strict=False))}) for route in routes)
    return RouteTable(Settings(routes=made, gateway=Gateway(dead_letter_topic=dead)))


def refusal(*routes: tuple[str, ...], **others: Any) -> str:
    with pytest.raises(RinglineError) as caught:
        table(*routes, **others)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_wildcards_are_put_into_the_answer_topic() -> None:
    """{1} is the first wildcard, # takes the rest with its slashes."""
    routes = table(("plant/+/alarm", "plant/{1}/answer"), ("scada/+/x/#", "out/{1}/{2}"))
    assert routes.resolve("plant/line-3/alarm") == Target("p", "plant/line-3/answer")
    assert routes.resolve("scada/s1/x/a/b") == Target("p", "out/s1/a/b")
    assert routes.resolve("plant/a/b/alarm") is None
    assert routes.resolve("other") is None


def test_the_first_route_that_matches_wins_and_filters_are_subscribed_once() -> None:
    """In the order of the configuration."""
    routes = table(("plant/+/alarm", "a/{1}"), ("plant/x/alarm", "b"), ("plant/+/alarm", "c"))
    assert routes.resolve("plant/x/alarm") == Target("p", "a/x")
    assert routes.filters == ["plant/+/alarm", "plant/x/alarm"]


def test_shared_subscriptions_match_by_their_filter() -> None:
    """$share/group/filter."""
    assert table(("$share/g/plant/+", "out/{1}")).resolve("plant/7") == Target("p", "out/7")


def test_what_is_put_in_is_never_looked_at_again() -> None:
    """A topic level called {2} is text."""
    assert substitute("out/{1}/{2}", ["{2}", "x"]) == "out/{2}/x"


@pytest.mark.parametrize(
    "topic", ["", "plant/a+/x", "plant/#/x", "plant/x#", "$share/g", "$share//x", "a\0b"]
)
def test_broken_filters_are_refused(topic: str) -> None:
    """One line that names the route."""
    assert "routes[0].topic" in refusal((topic, "out"))


@pytest.mark.parametrize(
    "answer", ["", "out/+", "out/#", "$SYS/x", "out/{2}", "out/{0}", "out/{x}", "out/{1", "a\0"]
)
def test_broken_answer_topics_are_refused(answer: str) -> None:
    """Wildcards, unknown numbers, stray braces."""
    assert "routes[0].answer" in refusal(("plant/+/alarm", answer))


@pytest.mark.parametrize(
    ("topic", "answer"),
    [
        ("plant/#", "plant/answers"),
        ("#", "out"),
        ("plant/+/alarm", "plant/{1}/alarm"),
        ("plant/+/+", "plant/answers/{1}"),
        ("+/alarm", "{1}/alarm"),
        ("out/+/stream", "out/{1}"),
        ("a/#", "{1}"),
    ],
)
def test_an_answer_that_would_come_back_as_an_alarm_is_refused(topic: str, answer: str) -> None:
    """On its topic or on its stream."""
    assert "would come back as an alarm" in refusal((topic, answer))


def test_loops_over_another_route_and_the_dead_letters_are_refused() -> None:
    """Every output against every filter."""
    assert "would come back" in refusal(("a/+", "b/{1}"), ("b/+", "c/{1}"))
    assert "gateway.dead_letter_topic" in refusal(("dead/+", "out"), dead="dead/letters")
    assert "gateway.dead_letter_topic" in refusal(("plant/+", "out"), dead="x/+")


def test_a_stream_is_named_by_the_wildcards_and_needs_no_answer() -> None:
    """Log lines are appended, alarms asked on it; a name that is empty or too long has a reason."""
    routes = table(("a/+/log", "", "a/{1}"), ("a/+/alarm", "out/{1}", "a/{1}"), ("b/#", "", "{1}"))
    assert routes.resolve("a/7/log") == Target("p", "", "a/7")
    assert routes.resolve("a/7/alarm") == Target("p", "out/7", "a/7")
    assert routes.resolve("b/" + "x" * 128) == Target("p", "", "x" * 128)
    for topic in ("b", "b/" + "x" * 129):
        with pytest.raises(PayloadError, match="1 to 128"):
            routes.resolve(topic)


@pytest.mark.parametrize("stream", ["{2}", "{x}", "a{", "x" * 129, "a\0", "{1}" * 129])
def test_broken_stream_names_are_refused(stream: str) -> None:
    """As answer topics are."""
    assert "routes[0].stream" in refusal(("plant/+/log", "", stream))


def test_an_answer_that_would_become_a_log_line_is_refused() -> None:
    """A stream that reads its own answers never ends."""
    assert "or a log line" in refusal(("a/+", "b/{1}"), ("b/+", "", "{1}"))


def test_two_profiles_never_share_a_stream() -> None:
    """It begins with the prefix of one of them."""
    text = refusal(("a/+", "", "{1}", "p"), ("b/+", "out", "x-{1}", "q"))
    assert 'routes[0].stream "{1}" and routes[1].stream "x-{1}"' in text
    table(("a/+", "", "a/{1}", "p"), ("b/+", "out", "b/{1}", "q"), ("c/+", "", "a/{1}", "p"))


@given(st.data())
def test_names_that_two_templates_can_give_make_them_meet(data: st.DataObject) -> None:
    """Against names that were made from both; literal ones meet only when they are equal."""
    fill = {"*+": st.text("ab", max_size=2), "*#": st.text("a/", max_size=3)}
    shapes = st.lists(st.sampled_from(["a", "b", "/", "*+", "*#"]), max_size=5)

    def name(shape: list[str]) -> str:
        return "".join(data.draw(fill[item]) if item in fill else item for item in shape)

    one, other = data.draw(shapes), data.draw(shapes)
    if name(one) == name(other):
        assert names_meet(one, other)
    literal = list(name(one))
    assert names_meet(literal, literal)
    assert names_meet(literal, one)
    assert names_meet(list("ab"), list("a" * 2)) is False


def test_no_route_is_refused() -> None:
    """A gateway without a route does nothing."""
    assert "[[routes]]" in refusal()


@pytest.mark.parametrize(
    ("answer", "topic", "part"),
    [
        ("{1}", "plant/x/", "empty"),
        ("{1}/answer", "plant/x/$SYS", "begins with"),
        ("{1}", "plant/x/$share", "begins with"),
        ("out/{1}", "plant/x/a\0b", "character"),
        ("out/{1}", "plant/x/a\x1fb", "character"),
        ("out/{1}", "plant/x/a\ufffeb", "character"),
        ("out/{1}/{1}", "plant/x/" + "x" * 40_000, "65535 bytes"),
        ("out/{1}", "plant/x/" + "x" * 65_528, "65535 bytes"),
        ("out/{1}", "plant/x/a+", "filters"),
        ("out/{1}", "plant/x/#", "filters"),
    ],
)
def test_an_answer_topic_that_cannot_be_used_has_a_reason(answer: str, topic: str, part: str) -> None:
    """What a topic puts into the answer's: publishing there would cost the connection every time."""
    with pytest.raises(PayloadError, match=part):
        table(("plant/x/+", answer)).resolve(topic)


def test_an_answer_topic_with_too_many_levels_has_a_reason() -> None:
    """Its stream is one level below."""
    routes = table(("plant/#", "out/{1}"))
    assert routes.resolve("plant/" + "/".join("x" * 199)) is not None
    with pytest.raises(PayloadError, match="200 slashes"):
        routes.resolve("plant/" + "/".join("x" * 200))


@given(st.text(max_size=5), st.sampled_from(["{1}", "{1}/x", "out/{1}", "out/{2}"]))
def test_an_answer_topic_is_usable_or_has_a_reason(level: str, answer: str) -> None:
    """Whatever the topic is."""
    try:
        found = table(("a/b/+/c/#", answer)).resolve(f"a/b/{level}/c/x")
    except PayloadError:
        return
    assert found is None or topic_problem(found.answer) is None


def test_dollar_topics_need_a_literal_first_level() -> None:
    """$SYS never reaches a wildcard."""
    assert match(["#"], "$SYS/broker") is None
    assert match(["+", "broker"], "$SYS/broker") is None
    assert match(["$SYS", "#"], "$SYS/broker") == ["broker"]


_level = st.sampled_from(["a", "b", "", "ab"])
_topic = st.lists(_level, min_size=1, max_size=4)
_filter = st.lists(_level | st.just("+"), min_size=0, max_size=3).flatmap(
    lambda head: st.sampled_from([head or ["+"], [*head, "#"]])
)


@given(_filter, _topic)
def test_match_is_what_the_definition_says(levels: list[str], topic: list[str]) -> None:
    """Against the definition, level by level."""
    fixed = levels[:-1] if levels[-1] == "#" else levels
    fits = len(topic) >= len(fixed) if levels[-1] == "#" else len(topic) == len(fixed)
    expected = fits and all(level in ("+", part) for level, part in zip(fixed, topic, strict=False))
    assert (match(levels, "/".join(topic)) is not None) == expected


@given(_filter, _filter, _topic)
def test_patterns_that_share_a_topic_overlap(one: list[str], other: list[str], topic: list[str]) -> None:
    """No loop is overlooked."""
    name = "/".join(topic)
    if match(one, name) is not None and match(other, name) is not None:
        assert overlap(one, other)
        assert overlap(other, one)


@given(_topic, _topic)
def test_literal_patterns_overlap_only_when_equal(one: list[str], other: list[str]) -> None:
    """No false alarm where there are no wildcards."""
    assert overlap(one, other) == (one == other)


@given(st.text(max_size=12))
def test_any_filter_is_usable_or_refused(topic: str) -> None:
    """Never another exception than RinglineError."""
    try:
        table((topic, "out/x"))
    except RinglineError:
        return
    assert levels_of(topic)


def test_a_pattern_of_many_wildcards_is_compared_soon() -> None:
    """In steps that grow with the patterns' lengths, not with the ways to lay one over the other."""
    assert "would come back" in refusal(("#", "{1}/" * 60 + "x"))
    levels = ["a"] * 60
    assert not overlap(["#", "a"] * 30 + ["x"], levels)
    assert not overlap(["a{1}" * 40 + "b"], ["a" * 20_000])
    assert overlap(["a{1}" * 40], ["a" * 20_000])


@pytest.mark.parametrize("topic", ["a\nb/#/c", "\x1b[2J+", "plant/" + "x" * 70_000, "/" * 300])
def test_a_filter_is_quoted_and_cut(topic: str) -> None:
    """One short line."""
    assert len(refusal((topic, "out"))) < 400


@pytest.mark.parametrize(
    ("level", "text", "fits"),
    [
        *(("{1}", "", True), ("a{1}", "a", True), ("a{1}a", "a", False), ("a{1}b{2}c", "axxbyyc", True)),
        *(("a{1}b{2}c", "acb", False), ("{1}b{2}b", "ab", False), ("a", "ab", False)),
    ],
)
def test_a_level_that_is_part_literal_meets_what_it_can_become(level: str, text: str, fits: bool) -> None:
    """`{n}` may also be nothing."""
    assert overlap([level], [text]) == fits
