"""The log: readable lines on a terminal, one JSON object a line otherwise; facts and library records alike."""

from __future__ import annotations

import logging
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TextIO

import click
import msgspec

from dockbell.core.model import Feed
from dockbell.core.moment import format_moment
from dockbell.core.printable import escape_json, printable
from dockbell.telemetry import Fact
from dockbell.telemetry.repeating import OncePerMinute

_COLOURS: Final = {logging.DEBUG: "bright_black", logging.WARNING: "yellow", logging.ERROR: "red"}
_ROUTINE: Final = ("apscheduler", "httpx", "httpcore", "asyncio")
"""Libraries that narrate what facts already say; only their warnings are kept."""
_REPEATING: Final = ("asyncio", "uvicorn.error")
"""Libraries that log each connection, also those of other code in the process."""
_LONGEST: Final = 4000
"""Characters of a line: keys, and other words that are not ours, may have millions."""


def start_log(stream: TextIO, *, verbose: bool = False) -> None:
    """Send the log to ``stream``, in the form that suits it; ``verbose`` adds each request and delivery."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines() if stream.isatty() else _Objects())
    handler.addFilter(OncePerMinute(handler, _REPEATING))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    for name in _ROUTINE:
        logging.getLogger(name).setLevel(logging.WARNING)


def log_fact(fact: Fact) -> None:
    """Write a fact to the log; a listener of :class:`dockbell.telemetry.Telemetry`."""
    logger = logging.getLogger("dockbell")
    if logger.isEnabledFor(fact.level):
        error = getattr(fact, "error", None)
        logger.log(
            fact.level,
            "%s",
            fact,
            extra={"fact": fact},
            exc_info=error if isinstance(error, BaseException) else None,
        )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class _Lines(logging.Formatter):
    """``12:30:01 main/shipments: poll complete …``, coloured by level, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record).astimezone():%H:%M:%S} {printable(_cut(record.getMessage()))}"
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info), keep="\n")
        colour = _COLOURS.get(record.levelno)
        return click.style(line, fg=colour) if colour else line


class _Objects(logging.Formatter):
    """One JSON object: time, level, text, and for a fact its name and fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": format_moment(_moment(record)),
            "level": record.levelname.lower(),
            "text": _cut(record.getMessage()),
        }
        fact = getattr(record, "fact", None)
        if isinstance(fact, Fact):
            entry["fact"] = type(fact).__name__
            entry |= {
                field.name: _plain(value) for field in fields(fact) if _is_plain(value := getattr(fact, field.name))
            }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return escape_json(msgspec.json.encode(entry).decode())


def _is_plain(value: object) -> bool:
    """Return whether a field may stand in the log: deliveries, with their records, may not; the text tells of them."""
    return value is None or isinstance(value, str | int | float | tuple | timedelta | Feed)


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return _cut(str(value)) if isinstance(value, Feed | str) else value
