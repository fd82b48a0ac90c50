"""The log: readable lines on a terminal, one JSON object a line otherwise; facts and library records alike."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TextIO

import click
import msgspec

from dockbell.core.model import Feed
from dockbell.core.moment import format_moment
from dockbell.core.printable import escape_json, printable
from dockbell.telemetry import Fact

_PAUSE_SECONDS: Final = 60
_KNOWN_MOST: Final = 200
"""So many different things are told apart; of those, the ones that were said last."""
_COLOURS: Final = {logging.DEBUG: "bright_black", logging.WARNING: "yellow", logging.ERROR: "red"}
_ROUTINE: Final = ("apscheduler", "httpx", "httpcore", "asyncio")
"""Libraries that narrate what facts already say; only their warnings are kept."""
_SILENT: Final = ("aiokafka", "aiormq", "aio_pika")
"""Libraries that warn of each connection that ends, which the fact of the sink says with its reason."""
_REPEATING: Final = ("asyncio", "uvicorn.error")
"""Libraries that log each connection, also those of other code in the process."""
_LONGEST: Final = 4000
"""Characters of a line: keys, and other words that are not ours, may have millions."""


@dataclass(slots=True)
class _Said:
    at: float  # Unix time
    line: str  # its first line
    level: int
    last: float = 0.0  # when it was kept back last
    unsaid: int = 0  # how often it was kept back since it was said


class OncePerMinute(logging.Filter):
    """Keeps back what facts and some loggers say again within a minute, and tells afterwards how often that was.

    It is told before the next line of the log, whatever that is: no timer runs for it.

    Args:
        handler: Writes the log; the filter is to be added to it.
        names: Of the loggers whose users are libraries: strangers can make them say much.
    """

    def __init__(self, handler: logging.Handler, names: Collection[str]) -> None:
        super().__init__()
        self._handler = handler
        self._names = frozenset(names)
        self._known: OrderedDict[Hashable, _Said] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        self._tell_what_was_kept_back(record.created)
        fact = getattr(record, "fact", None)
        sameness = fact.sameness if isinstance(fact, Fact) else None
        if sameness is None and record.name not in self._names:
            return True
        line = record.getMessage().partition("\n")[0]
        what = _identify(record, line) if sameness is None else (type(fact), sameness)
        said = self._known.get(what)
        if said is not None and _is_fresh(said, record.created):
            said.last, said.unsaid = record.created, said.unsaid + 1
            return False
        self._known[what] = _Said(record.created, line.partition("; retrying ")[0], record.levelno)
        self._known.move_to_end(what)
        if len(self._known) > _KNOWN_MOST:
            self._known.popitem(last=False)
        return True

    def _tell_what_was_kept_back(self, now: float) -> None:
        for said in list(self._known.values()):
            if said.unsaid and not _is_fresh(said, now):
                times = "once" if said.unsaid == 1 else f"{said.unsaid} times"
                words = f"{said.line} (repeated {times}, the last {now - said.last:.0f} s ago)"
                said.at, said.unsaid = now, 0
                self._handler.handle(logging.LogRecord(__name__, said.level, __file__, 0, words, None, None))


def _is_fresh(said: _Said, now: float) -> bool:
    return 0 <= now - said.at < _PAUSE_SECONDS


def _identify(record: logging.LogRecord, line: str) -> Hashable:
    """Return what two records have in common that say the same of different connections."""
    error = record.exc_info[1] if record.exc_info else None
    place = error.__traceback__ if error is not None else None
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = (place.tb_frame.f_code.co_filename, place.tb_lineno) if place is not None else None
    return record.name, record.levelno, line if not record.args else record.msg, type(error), where


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
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def log_fact(fact: Fact) -> None:
    """Write a fact to the log; a listener of :class:`dockbell.telemetry.Telemetry`."""
    logger = logging.getLogger("dockbell")
    if logger.isEnabledFor(fact.level):
        error = getattr(fact, "error", None)
        exc_info = error if isinstance(error, BaseException) else None
        logger.log(fact.level, "%s", fact, extra={"fact": fact}, exc_info=exc_info)


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
            fields = msgspec.structs.asdict(fact).items()
            entry |= {name: _plain(value) for name, value in fields if _is_plain(value)}
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
