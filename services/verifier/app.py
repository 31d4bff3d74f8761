"""The verifier service: the target model, the bus, and the loop between them."""

from __future__ import annotations

import gc
import os
import time
from functools import partial
from threading import Event

import structlog

from services.verifier.batch import Limits
from services.verifier.budget import Budget
from services.verifier.calibration import Calibration
from services.verifier.cost import PassCost
from services.verifier.deferral import Deferral
from services.verifier.engine import Engine
from services.verifier.loop import Loop
from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.messages.joining import Hello
from shared.config.cpus import plan_for_this_machine
from shared.config.load import config_hash
from shared.config.settings import Settings
from shared.kv import attach, describe_plane
from shared.model.open import ModelInfo, open_model
from shared.model.token_bytes import TokenBytes


def main(settings: Settings, stop: Event) -> int:
    """Load the target, join the bus, serve until `stop`. RinglineError for what a restart does not mend."""
    incarnation = time.monotonic_ns()
    options = settings.verifier
    file = open_model(settings.models.target, settings.paths)
    cpus = plan_for_this_machine(settings).verifier
    model = file.load(options.threads, options.isa, cpus)
    structlog.get_logger().info(
        "target loaded", model=file.info.name, isa=model.isa, threads=model.threads, cpus=cpus or "any"
    )
    limits = Limits.of(options)
    deferral = Deferral(options.node_budget, options.max_wait_ms / 1000, file.info.phrase_ends)
    bus = BusClient(Endpoints.of(settings.paths), _hello(settings, file.info, incarnation), proposals="bind")
    pool = partial(attach, settings.paths.memory, "verifier", file.info.plane, settings.context.kv)
    token_bytes = TokenBytes(file.tokenizer)
    if any(profile.stop for profile in settings.profiles):
        token_bytes.make()
    engine = Engine(model, limits, settings.context.kv, token_bytes)
    budget = Budget(PassCost(limits.pass_nodes), Calibration())
    loop = Loop(bus, engine, limits, budget, deferral, pool)
    gc.freeze()  # what is loaded now stays: later collections need not look at it
    try:
        bus.start()
        loop.run(stop)
    finally:
        bus.close("stopped")
        # An error holds the frames it came through, and they the model: frozen, that would never be released,
        # and the native module would report it as leaked on stderr.
        gc.unfreeze()
    return 0


def _hello(settings: Settings, info: ModelInfo, incarnation: int) -> Hello:
    return Hello(
        role="verifier",
        incarnation=incarnation,
        pid=os.getpid(),
        config_hash=config_hash(settings),
        model_hash=info.sha256,
        vocabulary_hash=info.vocabulary_hash,
        plane=describe_plane(info.plane, settings.context.kv),
    )
