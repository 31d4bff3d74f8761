"""Which models a plant runs, and which services belong to it."""

from __future__ import annotations

import pytest
import structlog

from services.context.app import describe
from services.context.models import HelloCheck, Pair, choose_pair
from shared.bus.messages.joining import Hello
from shared.config.errors import RinglineError
from shared.kv import describe_plane
from shared.model.open import ModelInfo
from tests.unit.context_plant import model_info, settings_for

DRAFT_PLANE = (1, 1, 64)


def choose(infos: dict[str, ModelInfo], **sections: object) -> tuple[Pair, list[str]]:
    """The pair, and the warnings on the way. A model without facts is one that is missing."""

    def read(name: str) -> ModelInfo:
        if name not in infos:
            raise RinglineError(f"{name}: no such model; fetch it")
        return infos[name]

    models = {"models": {"target": "target", "draft": "draft"}}
    with structlog.testing.capture_logs() as logs:
        pair = choose_pair(settings_for(**{**models, **sections}), read)
    return pair, [entry["why"] for entry in logs]


def test_a_pair_has_two_planes() -> None:
    pair, warnings = choose({"target": model_info(), "draft": model_info("draft", plane=DRAFT_PLANE)})
    assert pair.planes == ((1, 1, 32), DRAFT_PLANE)
    assert warnings == []


def test_a_draft_with_another_vocabulary_is_one_warning_and_no_plane() -> None:
    pair, warnings = choose({"target": model_info(), "draft": model_info("draft", vocabulary="v2")})
    assert pair.planes == ((1, 1, 32),)
    assert len(warnings) == 1
    assert "another vocabulary" in warnings[0]
    assert "models.draft" in warnings[0]


def test_a_missing_draft_model_is_one_warning_and_no_plane() -> None:
    pair, warnings = choose({"target": model_info()})
    assert pair.draft is None
    assert warnings == ["draft: no such model; fetch it"]


def test_retrieval_alone_needs_no_draft_model() -> None:
    pair, warnings = choose({"target": model_info()}, draft={"sources": ["retrieval"]})
    assert pair.draft is None
    assert warnings == []


def test_a_missing_target_is_an_error() -> None:
    with pytest.raises(RinglineError):
        choose({})


def hello(role: str, model: ModelInfo, **changes: str) -> Hello:
    fields = {
        "config_hash": "c",
        "model_hash": model.sha256,
        "vocabulary_hash": model.vocabulary_hash,
        "plane": describe_plane(model.plane, "f16"),
        **changes,
    }
    return Hello.model_validate({"role": role, "incarnation": 1, "pid": 1, **fields})


TARGET, DRAFT = model_info(), model_info("draft", plane=DRAFT_PLANE)
CHECK = HelloCheck(Pair(TARGET, DRAFT, ""), "c", "f16")


@pytest.mark.parametrize("field", ["config_hash", "model_hash", "vocabulary_hash", "plane"])
@pytest.mark.parametrize(("role", "model"), [("verifier", TARGET), ("draft", DRAFT)])
def test_a_mismatch_names_field_and_both_values(role: str, model: ModelInfo, field: str) -> None:
    good = hello(role, model)
    assert CHECK(good) is None
    refused = CHECK(hello(role, model, **{field: "other"}))
    assert refused is not None
    assert (refused.field, refused.got, refused.expected) == (field, "other", getattr(good, field))
    assert refused.hint


@pytest.mark.parametrize(("role", "model"), [("verifier", TARGET), ("draft", DRAFT)])
def test_a_service_with_another_format_of_keys_and_values_is_refused(role: str, model: ModelInfo) -> None:
    refused = HelloCheck(Pair(TARGET, DRAFT, ""), "c", "int8")(hello(role, model))
    assert refused is not None
    assert refused.field == "plane"
    assert (refused.expected[-6:], refused.got[-5:]) == (", int8", ", f16")


def test_int8_gives_the_same_memory_nearly_twice_the_blocks() -> None:
    blocks = {
        kv: describe(settings_for(context={"pool_mb": 8, "kv": kv}), Pair(TARGET, None, ""))[0].n_blocks
        for kv in ("f16", "int8")
    }
    assert blocks["int8"] == blocks["f16"] * 2 * 32 // (32 + 4)


def test_gateway_needs_the_configuration_and_no_model() -> None:
    bare = Hello(role="gateway", incarnation=1, pid=1, config_hash="c")
    assert CHECK(bare) is None
    assert CHECK(bare.model_copy(update={"config_hash": "d"})) is not None


def test_a_draft_model_without_a_plane_for_it_is_told_why() -> None:
    check = HelloCheck(Pair(TARGET, None, "the vocabulary differs"), "c", "f16")
    refused = check(hello("draft", DRAFT))
    assert refused is not None
    assert refused.hint == "the vocabulary differs"
    assert check(Hello(role="draft", incarnation=1, pid=1, config_hash="c")) is None


def test_a_pool_smaller_than_a_block_is_one_clear_line() -> None:
    big = Pair(model_info(plane=(512, 16, 128)), None, "")
    with pytest.raises(RinglineError, match="less than one block of 64"):
        describe(settings_for(), big)


def test_records_hold_the_longest_request_of_every_profile() -> None:
    profile = {"name": "p", "language": "zh", "system": "报警" * 2000, "window": 2048, "max_tokens": 500}
    _, limits = describe(settings_for(profiles=[profile]), Pair(TARGET, None, ""))
    assert limits.record.tokens >= 12_000 + 2048 + 500
    assert limits.n_visible == TARGET.context_length
