"""A plant log through one stream of a whole plant: does any process grow?

    python -m bench.endless_plant --model smollm2-135m [--tokens 200000] [--figures docs] [--json]

`ringline up` with its own broker; log lines come over MQTT and are read as one asset's stream, and every
`ALARM_EVERY` tokens an alarm of the asset is answered on it. RSS, PSS and anonymous memory of every process
are sampled at equal distances; slopes leave the first tenth out, in which windows and caches fill. So that it
is full by then, too, the journal keeps 300 lines instead of 10,000.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import figures
from bench.command import Report, model_options, print_report
from bench.mqtt_plant import MqttPlant
from bench.plant_log import lines
from bench.series import Memory, slope
from shared.config.logging import configure_logging
from shared.config.settings import Log

SAMPLES = 100
ALARM_EVERY = 4000  # tokens
_BATCH = 40  # lines published at a time
_BODY = """
[models]
target = "{model}"
draft = ""
[verifier]
threads = {threads}
[draft]
sources = ["retrieval"]
[gateway]
journal_max_lines = 300
[[profiles]]
name = "en"
language = "en"
window = 1024
max_tokens = 60
system = "You are a maintenance engineer in a plant. Explain the alarm and list three steps."
[[routes]]
topic = "plant/log"
profile = "en"
stream = "plant"
[[routes]]
topic = "plant/line/alarm"
profile = "en"
stream = "plant"
answer = "plant/line/answer"
"""


@dataclass
class Samples:
    tokens: list[int] = field(default_factory=list)
    memory: dict[str, list[Memory]] = field(default_factory=dict)  # by process

    def add(self, tokens: int, memory: dict[str, Memory]) -> None:
        self.tokens.append(tokens)
        for name, one in memory.items():
            self.memory.setdefault(name, []).append(one)


def main() -> int:
    configure_logging(Log(level="warning"), "bench")
    parser = model_options("bench.endless_plant", __doc__)
    parser.add_argument("--tokens", type=int, default=200_000, help="of log, through one stream")
    parser.add_argument("--seed", type=int, default=1, help="of the log")
    parser.add_argument("--figures", type=Path, help="directory for the figure")
    return print_report("bench.endless_plant", parser.parse_args(), _run, _table)


def _run(options: argparse.Namespace) -> Report:
    if options.figures is not None:
        figures.plots()
    with MqttPlant(options.data, _BODY.format(model=options.model, threads=options.threads)) as plant:
        pids = plant.pids()
        samples, asked = _read(plant, options)
        plant.wait(lambda: len(plant.answers) >= asked, "the answers")
        same = plant.pids() == pids
    if options.figures is not None:
        figures.draw_processes(samples.tokens, samples.memory, options.figures)
    return {
        "model": options.model,
        "tokens": samples.tokens[-1],
        "alarms_answered": sum("error" not in answer for answer in plant.answers.values()),
        "alarms": asked,
        "none_restarted": same,
        "processes": {name: growth(samples.tokens, memory) for name, memory in samples.memory.items()},
    }


def _read(plant: MqttPlant, options: argparse.Namespace) -> tuple[Samples, int]:
    """Everything published is computed before more is: the log waits for the model, not in the journal."""
    source, samples = lines(options.seed), Samples()
    known = asked = 0
    while known < options.tokens:
        for _ in range(_BATCH):
            plant.publish("plant/log", next(source).rstrip())
        known = _computed(plant, known)
        if known // ALARM_EVERY > asked:
            asked += 1
            plant.publish("plant/line/alarm", f'{{"id": "A{asked}", "text": "What needs attention most?"}}')
        if known >= len(samples.tokens) * options.tokens // SAMPLES:
            samples.add(known, plant.memory())
    return samples, asked


def _computed(plant: MqttPlant, before: int) -> int:
    """Length of the stream once it has grown and nothing of it is to be computed any more."""
    seen: list[int] = []
    while len(seen) < 3 or seen[-3] != seen[-1] or seen[-1] <= before:
        plant.wait(lambda: True, "the plant")
        found = [one for one in plant.pool().sequences if one.kind == "stream"]
        seen.append(found[0].known if found and found[0].known == found[0].kv_len else -len(seen))
        time.sleep(0.1)
    return seen[-1]


def growth(tokens: list[int], memory: list[Memory]) -> dict[str, float]:
    """MB at the end of the first tenth and of the run, and MB per 100,000 tokens between them."""
    first = len(memory) // 10
    result: dict[str, float] = {}
    for kind in Memory._fields:
        values = [getattr(one, kind) for one in memory]
        result |= {
            f"{kind}_mb": values[-1],
            f"{kind}_mb_per_100k_tokens": 1e5 * slope(tokens[first:], values[first:]),
        }
    return result


def _table(found: dict[str, Any]) -> str:
    rows = [
        f"{found['model']}: {found['tokens']} tokens through one stream, {found['alarms_answered']} of "
        f"{found['alarms']} alarms answered on it, "
        + ("no process restarted" if found["none_restarted"] else "PROBLEM: a process was restarted"),
        "process     RSS MB  PSS MB  anonymous MB  per 100,000 tokens: RSS     PSS  anonymous",
    ]
    rows += [
        f"{name:10} {one['rss_mb']:7.1f} {one['pss_mb']:7.1f} {one['anon_mb']:13.1f} "
        f"{one['rss_mb_per_100k_tokens']:+23.2f} {one['pss_mb_per_100k_tokens']:+7.2f} "
        f"{one['anon_mb_per_100k_tokens']:+10.2f}"
        for name, one in found["processes"].items()
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
