"""Values read from files and variables, and read again when these change while the daemon runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from dockbell.config import Secret
from dockbell.errors import ConfigError
from dockbell.telemetry import Fact

_T = TypeVar("_T")


class Renewed(Fact, frozen=True):
    """A secret or file of a sink has changed and is used from now on."""

    sink: str
    what: str

    line = "sink {sink}: {what} changed; the new value is in use"


class NotRenewed(Fact, frozen=True):
    """A secret or file of a sink has changed and cannot be used; the old value stays in use."""

    weight = logging.ERROR
    sink: str
    what: str
    problem: str

    line = "sink {sink}: {what} changed, but the new value cannot be used; the old one stays in use: {problem}"


class Reloadable(Generic[_T]):
    """A value, ``current``, and the secrets and files that it is made of.

    ``make`` reads them and returns the value; it raises ConfigError where they cannot be used, the first time too.
    """

    def __init__(self, sink: str, what: str, make: Callable[[], _T], origins: Iterable[Secret | str | None]) -> None:
        self._sink = sink
        self._what = what
        self._make = make
        # Not those that stand in the configuration itself.
        self._origins = [each for each in origins if each and not (isinstance(each, Secret) and each.value)]
        self.can_change = bool(self._origins)
        self._problem = ""
        # Before make(): a write meanwhile must count as a change.
        self._marks = [_look_up_mark(origin) for origin in self._origins]
        self.current = make()

    def reload(self, *, force: bool = False) -> Fact | None:
        """Make the value anew if its secrets or files have changed; return the fact to report, if there is one.

        Files are read if their metadata has changed, if they could not be used the last time, or with ``force``. While
        they cannot be used the old value stays; that is reported once.
        """
        marks = [_look_up_mark(origin) for origin in self._origins]
        if marks == self._marks and not self._problem and not force:
            return None
        self._marks = marks
        try:
            value = self._make()
        except ConfigError as error:
            known, self._problem = self._problem, str(error)
            return None if known else NotRenewed(self._sink, self._what, self._problem)
        had_problem, self._problem = bool(self._problem), ""
        if value == self.current and not had_problem:
            return None
        self.current = value
        return Renewed(self._sink, self._what)


def _look_up_mark(origin: Secret | str) -> Hashable:
    """Return a value that differs once an origin has changed: of a file its metadata, not its content."""
    if isinstance(origin, Secret) and origin.env is not None:
        return os.environ.get(origin.env)
    path = origin.file if isinstance(origin, Secret) else origin
    assert path is not None
    try:
        found = Path(path).stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
