"""The draft service: which sources can run here, and the threads they run in."""

from __future__ import annotations

import os
import time
from functools import partial
from threading import Event

import structlog

from services.draft.cpu_model import CpuDrafter, Outbox
from services.draft.loop import Loop
from services.draft.mailbox import Mailbox
from services.draft.npu import describe_npu
from services.draft.pacing import Pacing
from services.draft.plant import Plant, open_plant
from services.draft.scheduling import wait_for_turns
from services.draft.worker import Worker
from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.messages.joining import Hello
from shared.config.cpus import CpuPlan, plan_for_this_machine
from shared.config.errors import RinglineError
from shared.config.load import config_hash
from shared.config.settings import Settings
from shared.kv import attach, describe_plane
from shared.model.open import ModelInfo, open_model, read_info

_STOP_S = 2.0  # a step of the model is not waited for any longer

_log = structlog.get_logger()


def main(settings: Settings, stop: Event) -> int:
    """Join the bus and draft until `stop`. RinglineError for what a restart does not mend."""
    incarnation = time.monotonic_ns()
    wait_for_turns()
    _log.info("npu", found=describe_npu())
    info = _usable_model(settings)
    mailbox = Mailbox() if info is not None else None
    bus = BusClient(Endpoints.of(settings.paths), _hello(settings, info, incarnation), proposals="connect")
    plane = info.plane if info is not None else (0, 0, 0)
    pool = partial(attach, settings.paths.memory, "draft", plane, settings.context.kv)
    plant, history = open_plant(settings)
    cpus = plan_for_this_machine(settings)
    contends = _contends(settings, cpus)
    worker = _worker(settings, mailbox, bus, plant, cpus.draft, contends) if mailbox is not None else None
    loop = Loop(bus, plant, mailbox, pool, Pacing(drafting=not contends))
    bus.start()
    if history is not None:
        history.start()
    if worker is not None:
        worker.start()
    try:
        loop.run(stop)
    finally:
        bus.close("stopped")
        if history is not None:
            history.stop(_STOP_S)
        if worker is not None:
            worker.stop(_STOP_S)
    return 0


def _usable_model(settings: Settings) -> ModelInfo | None:
    """The draft model, or None when there is none that can be used: other sources go on without it."""
    name = settings.models.draft
    if "cpu" not in settings.draft.sources or name is None:
        return None
    target = read_info(settings.models.target, settings.paths)
    try:
        draft = read_info(name, settings.paths)
    except RinglineError as error:
        _log.error(f"the cpu source does not start: {error}. Other sources go on")
        return None
    if draft.vocabulary_hash == target.vocabulary_hash:
        return draft
    _log.error(
        f"the cpu source does not start: models.draft {draft.name} has another vocabulary than models.target "
        f"{target.name}; choose a draft model of the same family. Other sources go on"
    )
    return None


def _worker(
    settings: Settings,
    mailbox: Mailbox,
    bus: BusClient,
    plant: Plant | None,
    cpus: tuple[int, ...],
    contends: bool,
) -> Worker:
    outbox = Outbox(bus.propose, bus.send, mailbox.writing)

    def make() -> CpuDrafter:
        options = settings.draft
        file = open_model(settings.models.draft or "", settings.paths)
        model = file.load(options.threads, options.isa, cpus)
        _log.info(
            "draft loaded",
            model=file.info.name,
            isa=model.isa,
            threads=model.threads,
            cpus=cpus or "any",
        )
        context = settings.context
        return CpuDrafter(model, options.depth, context.max_sequences, outbox, context.kv, plant)

    return Worker(make, mailbox, nice=contends)


def _contends(settings: Settings, cpus: CpuPlan) -> bool:
    return shares_cores(settings, cpus, len(os.sched_getaffinity(0)))


def shares_cores(settings: Settings, cpus: CpuPlan, cores: int) -> bool:
    """Whether the draft model's threads can get in the way of the verifier's."""
    if cpus.draft and cpus.verifier:
        return not set(cpus.draft).isdisjoint(cpus.verifier)
    return settings.draft.threads + settings.verifier.threads > cores


def _hello(settings: Settings, info: ModelInfo | None, incarnation: int) -> Hello:
    return Hello(
        role="draft",
        incarnation=incarnation,
        pid=os.getpid(),
        config_hash=config_hash(settings),
        model_hash=info.sha256 if info is not None else "",
        vocabulary_hash=info.vocabulary_hash if info is not None else "",
        plane=describe_plane(info.plane, settings.context.kv) if info is not None else "",
    )
