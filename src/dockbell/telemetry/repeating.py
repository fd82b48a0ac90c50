"""What libraries say again and again is said once a minute, with how often it was: strangers can make them say much."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Final

_PAUSE_SECONDS: Final = 60
_KNOWN_MOST: Final = 200
"""So many different things are told apart; of those, the ones that were said last."""


@dataclass(slots=True)
class _Said:
    """Something that was said.

    Attributes:
        at: When, as Unix time.
        line: Its first line.
        level: Its level.
        unsaid: How often it was not said since.
    """

    at: float
    line: str
    level: int
    unsaid: int = 0


class OncePerMinute(logging.Filter):
    """Keeps back what some loggers say again within a minute; what was kept back is told by its number afterwards.

    It is told before the next line of the log, whatever that is: no timer runs for it.

    Args:
        handler: Writes the log; the filter is to be added to it.
        names: Of the loggers.
    """

    def __init__(self, handler: logging.Handler, names: Collection[str]) -> None:
        super().__init__()
        self._handler = handler
        self._names = frozenset(names)
        self._known: OrderedDict[Hashable, _Said] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be written now."""
        self._tell_what_was_kept_back(record.created)
        if record.name not in self._names:
            return True
        line = record.getMessage().partition("\n")[0]
        what = _identify(record, line)
        said = self._known.get(what)
        if said is not None and _is_fresh(said, record.created):
            said.unsaid += 1
            return False
        self._known[what] = _Said(record.created, line, record.levelno)
        self._known.move_to_end(what)
        if len(self._known) > _KNOWN_MOST:
            self._known.popitem(last=False)
        return True

    def _tell_what_was_kept_back(self, now: float) -> None:
        for said in list(self._known.values()):
            if said.unsaid and not _is_fresh(said, now):
                words = f"{said.line} ({said.unsaid} times more within {now - said.at:.0f} s)"
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
