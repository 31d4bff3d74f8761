"""What the demonstration shows: alarms, their answers as they stream, and the figures at the end."""

from __future__ import annotations

import statistics
from typing import Any

import psutil
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from services.launcher.demo_alarms import AlarmBook, DemoAlarm
from shared.bus.messages.status import StatusReply


def finished_answer(alarm: DemoAlarm) -> RenderableType:
    """An alarm with its whole answer."""
    answer = alarm.answer or {}
    if "error" in answer:
        return Panel(
            Text(f"no answer: {answer['error']}"),
            title=Text(alarm.shown),
            border_style="red",
            title_align="left",
        )
    seconds = answer["duration_ms"] - answer["ttft_ms"]
    rate = 1000 * (answer["answer_tokens"] - 1) / seconds if seconds > 0 else 0.0
    first = f"first after {answer['ttft_ms']:.0f} ms, {answer['queued_ms']:.0f} of them waiting"
    figures = f"{answer['answer_tokens']} tokens, {first}, then {rate:.1f} tokens/s"
    return Panel(
        Text(answer["text"]),
        title=Text(alarm.shown),
        subtitle=Text(figures, style="dim"),
        border_style=_colour(answer),
        title_align="left",
        subtitle_align="right",
    )


def streaming_answers(book: AlarmBook) -> RenderableType:
    """The answers that are being written now."""
    active = [alarm for alarm in book.open if alarm.text]
    panels = [Panel(Text(alarm.text + "▌"), title=Text(alarm.shown), title_align="left") for alarm in active]
    return Group(*panels, Text(f"{len(book.answers)} of {len(book.alarms)} answered", style="dim"))


def _colour(answer: dict[str, Any]) -> str:
    return ("blue", "yellow", "magenta", "red")[answer.get("severity", 1)]


def memory_of(pids: dict[str, int]) -> dict[str, float]:
    """Proportional set size in MiB: shared pages count once over all processes."""
    sizes = {}
    for name, pid in pids.items():
        try:
            sizes[name] = psutil.Process(pid).memory_full_info().pss / 2**20
        except psutil.Error:
            continue
    return sizes


def summary(book: AlarmBook, status: StatusReply, memory: dict[str, float], seconds: float) -> Table:
    """The figures of the whole run."""
    answers = [answer for answer in book.answers if "error" not in answer]
    table = Table(title="Ringline, all alarms", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("answers", f"{len(answers)} of {len(book.alarms)}")
    if answers:
        _speed_rows(table, answers, seconds)
    used = status.blocks_total - status.blocks_free
    blocks = f"{status.blocks_peak} at most, {used} now ({status.blocks_pinned} pinned)"
    table.add_row("blocks used", f"{blocks} of {status.blocks_total}")
    for name, size in memory.items():
        table.add_row(f"memory of {name} (PSS)", f"{size:.0f} MiB")
    table.add_row("memory together", f"{sum(memory.values()):.0f} MiB")
    return table


def _speed_rows(table: Table, answers: list[dict[str, Any]], seconds: float) -> None:
    tokens = sum(answer["answer_tokens"] for answer in answers)
    passes = max(1, sum(answer["passes"] for answer in answers))
    drafted = sum(answer["drafted"] for answer in answers)
    accepted = sum(answer["accepted"] for answer in answers)
    share = f", {100 * accepted / drafted:.0f} % of those drafted" if drafted else ""
    table.add_row("answer tokens", f"{tokens} in {seconds:.1f} s")
    table.add_row("tokens/s", f"{tokens / seconds:.1f}")
    table.add_row("accepted draft tokens per pass", f"{accepted / passes:.2f}{share}")
    table.add_row("publish to first token (ttft_ms)", _spread(answers, "ttft_ms"))
    table.add_row("of which waiting (queued_ms)", _spread(answers, "queued_ms"))


def _spread(answers: list[dict[str, Any]], field: str) -> str:
    values = [answer[field] for answer in answers]
    return f"median {statistics.median(values):.0f} ms, at most {max(values):.0f} ms"


def make_console() -> Console:
    """Of a fixed width where there is no terminal, so that a log of it can be read."""
    console = Console()
    return console if console.is_terminal else Console(width=110)
