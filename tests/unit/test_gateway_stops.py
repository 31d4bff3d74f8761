"""Stop strings in the text of an answer, and the sampling of a profile."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from services.gateway.alarm import Alarm
from services.gateway.sampling import sampling_for
from services.gateway.stops import StopText
from shared.bus.messages.requests import Sampling
from shared.config.settings import Profile

PROFILE = Profile(name="p", language="en", system="s", temperature=0.7, top_k=20, top_p=0.8, seed=5)
ALARM = Alarm(text="hot", id="A1", source="boiler", ts=1000.0)

texts = st.text("ab#", max_size=30)
stops = st.lists(st.text("ab#", min_size=1, max_size=4), max_size=3)


@example(text="#aa", strings=["a", "#aa"], cuts=[2])
@example(text="#aa", strings=["a", "#aa"], cuts=[])
@given(texts, stops, st.lists(st.integers(0, 30), max_size=8))
def test_what_is_published_is_the_text_before_the_first_stop_string(
    text: str, strings: list[str], cuts: list[int]
) -> None:
    """The one that is complete first. However it arrives; nothing that was published is ever taken back."""
    ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(strings))] if strings else []
    longest = max((len(s) for s in strings if ends and text[: ends[0]].endswith(s)), default=0)
    whole = text[: ends[0] - longest] if ends else text
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    cutter, published = StopText(strings), ""
    for begin, end in pairwise(borders):
        published += cutter.push(text[begin:end])
        assert whole.startswith(published)
    if len(borders) == 1:
        published += cutter.push(text)
    assert published + cutter.finish() == whole


@given(texts)
def test_without_stop_strings_nothing_is_held_back(text: str) -> None:
    assert StopText(()).push(text) == text


def test_the_same_alarm_has_the_same_seed_whenever_it_is_raised() -> None:
    first = sampling_for(PROFILE, "plant/1", ALARM)
    again = sampling_for(PROFILE, "plant/1", ALARM.model_copy(update={"ts": 2000.0}))
    assert first == again == Sampling(temperature=0.7, top_k=20, top_p=0.8, seed=first.seed)


def test_other_alarms_and_other_profile_seeds_have_other_seeds() -> None:
    others = [
        sampling_for(PROFILE, "plant/2", ALARM),
        sampling_for(PROFILE, "plant/1", ALARM.model_copy(update={"id": "A2"})),
        sampling_for(PROFILE, "plant/1", ALARM.model_copy(update={"id": None})),
        sampling_for(PROFILE, "plant/1", ALARM.model_copy(update={"text": "very hot"})),
        sampling_for(PROFILE.model_copy(update={"seed": 6}), "plant/1", ALARM),
    ]
    seeds = {sampling.seed for sampling in others} | {sampling_for(PROFILE, "plant/1", ALARM).seed}
    assert len(seeds) == 6
