"""The whole plant in the memory of a small board: does anything grow, fail or get lost?

    python -m bench.budget --model qwen2.5-coder-1.5b [--limit-mb 1800] [--flood 500]     (make test-budget)

A board with 4 GB of which 1.8 GB are free. `ringline up` runs under that limit (bench/memory_limit.py): eight
alarms at once, a flood of short ones, eight at once again. The weights are dropped from the page cache first,
so that they are counted. Exit code 1 when something is not as it should be.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.command import Report, model_options, print_report
from bench.memory_limit import memory_limit
from bench.mqtt_plant import MqttPlant
from bench.series import Memory
from shared.config.logging import configure_logging
from shared.config.settings import Log, Paths
from shared.model.open import open_model

AT_ONCE = 8
GROWTH_MB = 8.0  # of all processes' anonymous memory over the flood
_BODY = """
[models]
target = "{model}"
draft = ""
[context]
pool_mb = {pool_mb}
max_sequences = 8
max_waiting = 16
[verifier]
threads = {threads}
[draft]
sources = ["retrieval"]
[gateway]
max_in_flight = 64
[[profiles]]
name = "long"
language = "en"
window = 512
max_tokens = 140
system = "You are a maintenance engineer in a plant. Explain the alarm and list three steps."
[[profiles]]
name = "short"
language = "en"
window = 128
max_tokens = 4
system = "Answer in one word."
[[routes]]
topic = "plant/long/alarm"
profile = "long"
answer = "plant/long/answer"
[[routes]]
topic = "plant/short/alarm"
profile = "short"
answer = "plant/short/answer"
"""


def main() -> int:
    configure_logging(Log(level="warning"), "bench")
    parser = model_options("bench.budget", __doc__)
    parser.add_argument("--limit-mb", type=int, default=1800)
    parser.add_argument("--pool-mb", type=int, default=192)
    parser.add_argument("--flood", type=int, default=500, help="alarms at once")
    found: list[str] = []

    def run(options: argparse.Namespace) -> Report:
        report = _run(options)
        found.extend(report["problems"])
        return report

    return print_report("bench.budget", parser.parse_args(), run, _table) or bool(found)


def _run(options: argparse.Namespace) -> Report:
    file = open_model(options.model, Paths(data=options.data))
    drop_from_page_cache(file.path)
    limit = memory_limit(options.limit_mb)
    body = _BODY.format(model=options.model, pool_mb=options.pool_mb, threads=options.threads)
    try:
        with MqttPlant(options.data, body, limit) as plant:
            pids = plant.pids()
            live = _ask(plant, "before", AT_ONCE)
            before = plant.memory()
            started = time.monotonic()
            for number in range(options.flood):
                plant.publish("plant/short/alarm", f'{{"id": "flood-{number}", "text": "Fault F{number}"}}')
            asked = AT_ONCE + options.flood
            plant.wait(lambda: len(plant.answers) + len(plant.dead) >= asked, "answers to the flood")
            flood_s = time.monotonic() - started
            live = max(live, _ask(plant, "after", AT_ONCE))
            after = plant.memory()
            answers = list(plant.answers.values())
            report = {
                "model": file.info.name,
                "limit": limit.kind,
                "limit_mb": options.limit_mb,
                "pool_mb": options.pool_mb,
                "peak_mb": limit.peak_mb(),
                "pinned_mb": limit.pinned_mb(),
                "killed": limit.killed(),
                "restarted": sorted(name for name, pid in plant.pids().items() if pids.get(name) != pid),
                "at_once": live,
                "asked": asked + AT_ONCE,
                "answered": sum("error" not in answer for answer in answers),
                "refused_with_reason": sum("error" in answer for answer in answers) + len(plant.dead),
                "put_off": plant.log().count("context is full, submitting again later"),
                "flood_s": flood_s,
                "memory_before": {name: memory._asdict() for name, memory in before.items()},
                "memory_after": {name: memory._asdict() for name, memory in after.items()},
                "growth_mb": _anonymous(after) - _anonymous(before),
                "memory_errors": plant.log().count("MemoryError") + plant.log().count("Cannot allocate"),
            }
    finally:
        limit.remove()
    return {**report, "problems": problems(report)}


def _ask(plant: MqttPlant, name: str, count: int) -> int:
    """`count` long alarms at once, to their ends; the most requests that were live at once."""
    for number in range(count):
        text = f"Pump P{number} vibrates at {3 + number}.{number} mm/s, limit 4.5, motor current normal"
        plant.publish("plant/long/alarm", f'{{"id": "{name}-{number}", "text": "{text}"}}')
    names, most = [f"{name}-{number}" for number in range(count)], 0
    while not all(name in plant.answers for name in names):
        plant.wait(lambda: True, "the plant")
        requests = [one for one in plant.pool().sequences if one.kind == "request"]
        most = max(most, len(requests))
        time.sleep(0.2)
    return most


def drop_from_page_cache(path: Path) -> None:
    """Of whoever has read it: the next reader is charged for its pages."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _anonymous(memory: dict[str, Memory]) -> float:
    return sum(one.anon for one in memory.values())


def problems(report: dict[str, Any]) -> list[str]:
    found = []
    if report["killed"] or report["restarted"] or report["memory_errors"]:
        found.append("a process was killed, restarted or refused memory")
    if report["growth_mb"] > GROWTH_MB:
        found.append(f"anonymous memory has grown by {report['growth_mb']:.1f} MB over the flood")
    if report["answered"] + report["refused_with_reason"] != report["asked"]:
        found.append("an alarm has neither an answer nor a refusal")
    if report["at_once"] < AT_ONCE:
        found.append(f"only {report['at_once']} sequences were live at once")
    return found


def _table(found: dict[str, Any]) -> str:
    lines = [
        f"{found['model']}, pool {found['pool_mb']} MB, limit {found['limit_mb']} MB by {found['limit']}: "
        f"peak {found['peak_mb']:.0f} MB, {found['pinned_mb']:.0f} MB of it not the cache of files; "
        f"killed {found['killed']}, restarted {found['restarted'] or 'none'}",
        f"{found['at_once']} sequences at once; {found['asked']} alarms: {found['answered']} answered, "
        f"{found['refused_with_reason']} refused with a reason, {found['put_off']} times put off; "
        f"flood {found['flood_s']:.0f} s",
        "process     PSS before  after  anonymous before  after  (MB)",
    ]
    for name, before in found["memory_before"].items():
        after = found["memory_after"].get(name, before)
        lines.append(
            f"{name:10} {before['pss']:11.1f} {after['pss']:6.1f} {before['anon']:17.1f} {after['anon']:6.1f}"
        )
    return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in found["problems"])])


if __name__ == "__main__":
    sys.exit(main())
