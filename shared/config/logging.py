"""Structured logs on stderr: one line an event, JSON for machines or colours for people."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor

from shared.config.quote import one_line
from shared.config.settings import Log

MAX_TEXT = 500  # characters of one value


def configure_logging(log: Log, service: str) -> None:
    """Send structlog and the standard library's warnings to stderr, each line marked with `service`."""

    def mark(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["service"] = service
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        mark,
        cut_texts,
    ]
    level = logging.getLevelNamesMapping()[log.level.upper()]
    structlog.configure(
        processors=[*shared, *_rendering(log)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    _capture_libraries(shared, log)


def cut_texts(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Make every text one line of at most MAX_TEXT characters: what is logged may come from anybody."""
    for key, value in event.items():
        if isinstance(value, str) and not (len(value) <= MAX_TEXT and value.isprintable()):
            event[key] = one_line(value, MAX_TEXT)
    return event


def _rendering(log: Log) -> list[Processor]:
    if log.format == "console":
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]


def _capture_libraries(shared: list[Processor], log: Log) -> None:
    """Libraries log through `logging`; their warnings get the same shape."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(log)],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
