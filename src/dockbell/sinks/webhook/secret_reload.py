"""Values that are made of files and variables, and made anew when these change, while the daemon runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from dockbell.config import Secret
from dockbell.errors import ConfigError
from dockbell.telemetry import Fact

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Renewed(Fact):
    """What a sink was given has changed and is used from now on."""

    sink: str
    what: str

    line = "sink {sink}: {what} changed; the new is in use"


@dataclass(frozen=True, slots=True)
class NotRenewed(Fact):
    """What a sink was given has changed into something that cannot be used; the old stays in use."""

    weight = logging.ERROR
    sink: str
    what: str
    problem: str

    line = "sink {sink}: {what} changed and cannot be used, the old stays in use: {problem}"


class Renewable(Generic[_T]):
    """A value, and where it comes from.

    Args:
        sink: As in ``[sinks.NAME]``.
        what: Names the value to people.
        make: Makes it, reading what it needs; raises ConfigError where that cannot be used.
        origins: The secrets and files that it is made of.

    Raises:
        ConfigError: It cannot be made.

    Attributes:
        current: The value that was made last.
    """

    def __init__(self, sink: str, what: str, make: Callable[[], _T], origins: Iterable[Secret | str | None]) -> None:
        self._sink = sink
        self._what = what
        self._make = make
        self._origins = [each for each in origins if each is not None and not _is_text(each)]
        self._problem = ""
        # Before it is read: what is written meanwhile must be seen as a change.
        self._marks = self._look_up_marks()
        self.current = make()

    @property
    def can_change(self) -> bool:
        """Whether it is made of anything but the configuration itself."""
        return bool(self._origins)

    def renew(self, *, closely: bool = False) -> Fact | None:
        """Make the value anew if what it is made of has changed, and return what is to be told of that.

        It looks at files, and reads them where they seem to have changed, or cannot be used yet; with ``closely`` in
        any case. A file that is being written keeps the value as it was; that is told once.
        """
        marks = self._look_up_marks()
        if marks == self._marks and not self._problem and not closely:
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

    def _look_up_marks(self) -> list[Hashable]:
        return [_look_up_mark(origin) for origin in self._origins]


def _is_text(origin: Secret | str) -> bool:
    return isinstance(origin, Secret) and origin.env is None and origin.file is None


def _look_up_mark(origin: Secret | str) -> Hashable:
    """Return what differs once an origin has changed, without reading it where it is a file."""
    if isinstance(origin, Secret) and origin.env is not None:
        return os.environ.get(origin.env)
    path = origin.file if isinstance(origin, Secret) else origin
    assert path is not None
    try:
        found = Path(path).stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
