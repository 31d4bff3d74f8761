"""A profile's sampling, with a seed for each alarm. Pure."""

from __future__ import annotations

import hashlib
import json

from services.gateway.alarm import Alarm
from shared.bus.messages.requests import Sampling
from shared.config.settings import Profile

_SEED_BITS = 53  # of a whole number that every reader of JSON keeps


def sampling_for(profile: Profile, topic: str, alarm: Alarm) -> Sampling:
    """The same alarm has the same seed after a restart, in another attempt, and when it is raised again.

    What makes it the same: its topic, its id, and what it says; not when it happened.
    """
    said = alarm.model_dump(exclude={"ts", "doubts"})
    text = json.dumps([profile.seed, topic, said], sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return Sampling(
        temperature=profile.temperature,
        top_k=profile.top_k,
        top_p=profile.top_p,
        min_p=profile.min_p,
        repetition_penalty=profile.repetition_penalty,
        seed=int.from_bytes(digest, "little") >> (64 - _SEED_BITS),
        acceptance=profile.acceptance,
    )
