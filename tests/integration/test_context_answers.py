"""The real context process answers every request, or refuses it."""

from __future__ import annotations

from tests.integration.context_world import Gateway, World, expected, request


def test_requests_are_answered_and_a_clean_stop_leaves_nothing(world: World) -> None:
    world.start("context")
    world.start("verifier")
    requests = [request(f"r{i}") for i in range(6)]
    gateway = Gateway(world, requests)
    gateway.run()
    assert gateway.answers == {submit.request_id: expected(submit) for submit in requests}
    status = world.until(lambda s: s.blocks_free + s.blocks_pinned == s.blocks_total)
    assert status.blocks_pinned == 3
    assert {service.role for service in status.services} == {"context", "verifier", "gateway"}
    said = world.stop("context")
    assert list(world.memory.iterdir()) == []
    assert "inconsistent" not in said
    assert "Traceback" not in said


def test_a_flood_is_answered_or_refused_and_never_forgotten(world: World) -> None:
    world.start("context")
    world.start("verifier")
    requests = [request(f"r{i}", max_tokens=8, severity=i % 4) for i in range(100)]
    gateway = Gateway(world, requests)
    gateway.run()
    assert gateway.refused
    answered = [submit for submit in requests if submit.request_id not in gateway.refused]
    assert all(gateway.answers[submit.request_id] == expected(submit) for submit in answered)
    assert len(answered) >= world.settings.context.max_waiting
    assert {submit.severity for submit in answered if submit.request_id != "r0"} == {3}
