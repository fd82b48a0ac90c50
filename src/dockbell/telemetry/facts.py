"""What a fact is, and what happened to dockbell itself.

:mod:`dockbell.telemetry.reading_facts` has what happened to feeds, :mod:`dockbell.telemetry.sink_facts` to sinks.
"""

from __future__ import annotations

import logging
import string
from collections.abc import Hashable
from datetime import timedelta
from typing import ClassVar, Final

import msgspec

from dockbell.core.counting import count_of
from dockbell.core.model import Feed


class Fact(msgspec.Struct, frozen=True):
    """Something that happened and that an operator may want to know."""

    weight: ClassVar[int] = logging.INFO  # how much it matters, on the scale of :mod:`logging`
    line: ClassVar[str] = ""
    """The log line, a template of the fields: ``{sink}``; ``{pages:# page}`` counts things, ``{delay:.1f}`` seconds.
    Facts without it write ``__str__``."""

    @property
    def level(self) -> int:
        """How much this one matters; the weight of its kind, unless its fields say otherwise."""
        return self.weight

    @property
    def sameness(self) -> Hashable:
        """What it has in common with others that say the same: the log says it once a minute; None: it says each."""
        return None

    def __str__(self) -> str:
        return _LINES.vformat(self.line, (), msgspec.structs.asdict(self))


class _Lines(string.Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        if format_spec.startswith("# ") and isinstance(value, int):
            return count_of(value, format_spec[2:])
        seconds = value.total_seconds() if isinstance(value, timedelta) and format_spec else value
        return str(super().format_field(seconds, format_spec))


_LINES: Final = _Lines()


def describe_retry(delay: timedelta) -> str:
    """Return when something is tried again: ``retrying now``, ``retrying in 5 s``."""
    seconds = round(delay.total_seconds())
    return f"retrying in {seconds} s" if seconds else "retrying now"


class CommandFinished(Fact, frozen=True):
    """A command of an operator was done, or could not be."""

    line = "{feed}: {command}: {outcome}"
    feed: Feed
    command: str
    outcome: str


class AgentFails(Fact, frozen=True):
    """An agent met an unexpected error; it begins again."""

    weight = logging.ERROR
    agent: str
    error: BaseException

    def __str__(self) -> str:
        error = self.error
        while isinstance(error, BaseExceptionGroup):  # of several the first: it ended the others
            error = error.exceptions[0]
        return f"{self.agent}: {type(error).__name__}: {error}"


class StoreFails(Fact, frozen=True):
    """The store cannot be written: nothing is read, and nothing delivered that could not be noted, until it can."""

    weight = logging.ERROR
    line = "{reason}; reading and delivery wait and resume automatically"
    reason: str


class StoreMended(Fact, frozen=True):
    line = "store: writable again after {after:.0f} s; reading and delivery resume"
    after: timedelta


class DiskFills(Fact, frozen=True):
    """Little is left on the disk of the store; told again only after it had room."""

    weight = logging.WARNING
    left: int  # bytes

    def describe(self) -> str:
        """Return it without its subject."""
        megabytes = f"{self.left / 1_000_000:,.0f} MB"
        return f"{megabytes} left on its disk; free some space: when the disk is full, reading and delivery wait"

    def __str__(self) -> str:
        return f"store: {self.describe()}"


class DiskHasRoom(Fact, frozen=True):
    line = "store: its disk has free space again"


class SourcesClaimed(Fact, frozen=True):
    count: int
    held: int
    taken_over: int = 0  # how many of them a dead process had

    def __str__(self) -> str:
        dead = f" ({self.taken_over} from processes that died)" if self.taken_over else ""
        return f"fleet: this process claimed {count_of(self.count, 'source')}{dead}, it now has {self.held}"


class SourcesHandedOver(Fact, frozen=True):
    line = "fleet: this process handed over {count:# source} to others, it now has {held}"
    count: int
    held: int


class MembershipLost(Fact, frozen=True):
    """This process did not renew its membership in time, and begins anew."""

    line = "fleet: {reason}; this process starts over"
    weight = logging.WARNING
    reason: str


class Crowded(Fact, frozen=True):
    """The web server refused connections because there were too many; told at most once a minute."""

    weight = logging.WARNING
    count: int  # how many connections were refused, or were ended for others, since it was told last
    places: int  # how many connections there may be
    peer: str  # the address of the last of them; empty where no connection could be accepted
    reason: str = ""  # why no connection could be accepted for a while; else empty

    def describe(self) -> str:
        """Return it without its subject."""
        refused = f"{count_of(self.count, 'connection')} refused or closed"
        words = f"{refused} (limit {self.places}), the last from {self.peer}"
        if self.reason:
            none = f"no connection could be accepted: {self.reason}"
            return f"{none}; {words}" if self.count else none
        return words

    def __str__(self) -> str:
        return f"web: {self.describe()}"


class StoreUpgraded(Fact, frozen=True):
    """The store of an older dockbell was brought up to date; a copy was made before."""

    line = "store: upgraded from schema version {version} to {now}; copy from before the upgrade: {copy}"
    version: int
    now: int
    copy: str


class StoreExtended(Fact, frozen=True):
    """A store that processes share got what this dockbell needs; processes of older ones go on to work on it."""

    line = "store: upgraded from schema version {version} to {now}; processes of older versions can keep working"
    version: int
    now: int


class UpgradeWaits(Fact, frozen=True):
    """What only older dockbells need stays in the store as long as processes of these work on it."""

    line = "store: the upgrade waits for these processes of older versions to end: {older}"
    older: str


class UpgradeFinished(Fact, frozen=True):
    """What only older dockbells need was removed from the store."""

    line = "store: upgrade finished; it now refuses a dockbell that does not know schema version {oldest}"
    oldest: int


class FileExposed(Fact, frozen=True):
    """A file can be read or written by those who should not."""

    weight = logging.WARNING
    line = "{problem}"
    problem: str


class Started(Fact, frozen=True):
    name: str
    feeds: int
    sinks: tuple[str, ...]

    def __str__(self) -> str:
        return f"dockbell {self.name} runs: {count_of(self.feeds, 'feed')}, sinks {', '.join(self.sinks) or 'none'}"


class ProcessDied(Fact, frozen=True):
    """The process that worked on the store last did not stop in order."""

    weight = logging.WARNING
    line = "store: {process} did not shut down cleanly; this process continues where it stopped"
    process: str


class Stopping(Fact, frozen=True):
    line = "stopping: finishing the deliveries in flight"


class Reloaded(Fact, frozen=True):
    """The configuration was read again and is followed now."""

    words: str
    revision: int = 0  # of the configuration that processes share; 0 where they do not

    def __str__(self) -> str:
        return f"reloaded: {f'revision {self.revision}: ' if self.revision else ''}{self.words}"


class ConfigurationOutdated(Fact, frozen=True):
    """The configuration file is not followed: a newer revision is, or one with sources that commands have changed."""

    weight = logging.WARNING
    outdated: int  # the revision that the file is; 0: it is none
    newest: int
    drops: int = 0  # sources of the newest revision that the file does not have
    changes: int = 0  # sources that it has otherwise

    def __str__(self) -> str:
        if self.outdated:
            why = f"is revision {self.outdated}, but revision {self.newest} replaced it and is in use;"
        else:
            why = (
                f'has other sources than revision {self.newest}, which "dockbell sources" changed and which is in use;'
                " remove the sources from the file, and the rest of it is used;"
            )
        remedy = '"dockbell apply --force" makes all processes use the file'
        return f"the configuration file {why} {remedy}{describe_losses(self.drops, self.changes)}"


def describe_losses(drops: int, changes: int) -> str:
    """Return what becomes of the sources when a file is followed; empty where nothing does."""
    counts = {"drops": drops, "changes": changes}
    told = [f"{verb} {count_of(count, 'source')}" for verb, count in counts.items() if count]
    return f", which {' and '.join(told)}" if told else ""


class ReloadRefused(Fact, frozen=True):
    """The configuration was read again and cannot be followed; what runs goes on by the old one."""

    weight = logging.ERROR
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"not reloaded: {'; '.join(self.problems)}"
