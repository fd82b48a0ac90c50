"""What is told of dockbell itself: its agents, its store, its configuration, and what operators ask of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from dockbell.core.model import Feed
from dockbell.telemetry.facts import Fact


@dataclass(frozen=True, slots=True)
class CommandFinished(Fact):
    """What an operator asked for was done, or could not be."""

    feed: Feed
    command: str
    outcome: str

    line = "{feed}: {command}: {outcome}"


@dataclass(frozen=True, slots=True)
class AgentFails(Fact):
    """An agent met an unexpected error; it begins again."""

    weight = logging.ERROR
    agent: str
    error: BaseException

    def __str__(self) -> str:
        error = self.error
        while isinstance(error, BaseExceptionGroup):  # of several the first: it ended the others
            error = error.exceptions[0]
        return f"{self.agent}: {type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class StoreFails(Fact):
    """The store cannot be written: nothing is read, and nothing delivered that could not be noted, until it can."""

    weight = logging.ERROR
    reason: str

    line = "{reason}; reading and delivering wait, and go on by themselves"


@dataclass(frozen=True, slots=True)
class StoreMended(Fact):
    """The store can be written again."""

    after: timedelta

    line = "store: can be written again after {after:.0f} s; reading and delivering go on"


@dataclass(frozen=True, slots=True)
class Crowded(Fact):
    """More came to the web server than there is room for; told at most once a minute.

    Attributes:
        count: How many connections were not taken, or were ended for others, since it was told last.
        places: How many connections there may be.
        peer: The address of the last of them; empty where no connection could be accepted.
        reason: Why no connection could be accepted for a while; else empty.
    """

    weight = logging.WARNING
    count: int
    places: int
    peer: str
    reason: str = ""

    def describe(self) -> str:
        """Return it without its subject."""
        words = f"{self.count} connections were sent away, the last from {self.peer}, of {self.places} places"
        if self.reason:
            none = f"nobody could be let in: {self.reason}"
            return f"{none}; {words}" if self.count else none
        return words

    def __str__(self) -> str:
        return f"web: {self.describe()}"


@dataclass(frozen=True, slots=True)
class StoreUpgraded(Fact):
    """The store of an older dockbell was brought up to date; a copy was made before."""

    version: int
    now: int
    copy: str

    line = "store: brought from version {version} to {now}; as it was before: {copy}"


@dataclass(frozen=True, slots=True)
class FileExposed(Fact):
    """A file can be read or written by those who should not."""

    weight = logging.WARNING
    problem: str

    line = "{problem}"


@dataclass(frozen=True, slots=True)
class Started(Fact):
    """The daemon runs."""

    name: str
    feeds: int
    sinks: tuple[str, ...]

    def __str__(self) -> str:
        return f"dockbell {self.name} runs: {self.feeds} feeds, sinks {', '.join(self.sinks) or 'none'}"


@dataclass(frozen=True, slots=True)
class Stopping(Fact):
    """The daemon was told to stop."""

    line = "stopping: delivering what is in flight"


@dataclass(frozen=True, slots=True)
class Reloaded(Fact):
    """The configuration was read again and is followed now."""

    words: str

    line = "reloaded: {words}"


@dataclass(frozen=True, slots=True)
class ReloadRefused(Fact):
    """The configuration was read again and cannot be followed; what runs goes on by the old one."""

    weight = logging.ERROR
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"not reloaded: {'; '.join(self.problems)}"
