"""Several processes that share the sources of one store: which of them has which source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

import msgspec

Spent: TypeAlias = Sequence[int]
"""How many requests of a key may be sent until it is said anew, then how many were in the last ten seconds, in the ten
before, and so on for a minute."""


class Claim(msgspec.Struct, frozen=True):
    """What a process takes over with the sources of one API key."""

    spent: Spent  # the requests that the processes before may have sent, by their age ``age`` ago
    age: timedelta
    due_in: timedelta | None = None
    """After which time the first of its feeds may be due, negative where it was before; None where nothing tells."""


class Share(msgspec.Struct, frozen=True):
    """What a process has of the sources."""

    held: frozenset[str]  # the sources that are its own
    surplus: frozenset[str] = frozenset()  # those among them that it should hand over: others have less
    claims: Mapping[str, Claim] = msgspec.field(default_factory=dict)
    """Of what it has claimed just now, by the first source with the key."""
    taken_over: int = 0  # how many of the sources that it has claimed just now were a dead process's
    has_more: bool = False  # it has claimed as many as it may at once, and may claim others the next time


class Member(msgspec.Struct, frozen=True):
    """A process that works on a store."""

    name: str  # ``process 4711 on host``
    version: str  # of its dockbell
    slot: int  # a small number that no other has
    began_at: datetime
    sources: int  # how many it has
    requests: int  # that it sent within the last minute
    taken_over: int  # how many sources of dead processes it has taken since it began


class Upgrade(msgspec.Struct, frozen=True):
    """How far a store is brought up to date: what only older processes need is removed once none of them is left."""

    before: int  # the version that a process had to know at least
    oldest: int  # the version that it must know now
    older: Sequence[str] = ()  # the processes for which the rest waits, ``process 4711 on host (0.1.0)``


class Revision(msgspec.Struct, frozen=True):
    """What the processes have of their configuration in common."""

    number: int
    digest: str  # of the file that it was made of
    content: str  # JSON object
    version: str  # of the dockbell that made it
    outdated: int = 0  # what was agreed on is this older revision, which the one here has replaced; 0: it is not
    is_other: bool = False  # what was agreed on has other sources than the one here, which commands have changed


class Configurations(Protocol):
    """The revisions of the configuration that processes share; the newest one is followed."""

    async def agree(self, digest: str, content: str, *, force: bool = False) -> Revision:
        """Return the newest revision, after adding one of this content where none with the digest was there before.

        None is added either where the content has other sources than the newest revision, and those there are looked
        after by commands. ``force`` adds one in both cases. Where the content has no ``sources``, those of the newest
        revision stay.

        Raises:
            StoreError: The store cannot be used.
        """

    async def replace(self, number: int, digest: str, content: str) -> Revision | None:
        """Add a revision of this content after the one with the number; None where there is a newer one already.

        Raises:
            StoreError: The store cannot be used.
        """

    async def find_newest(self, after: int = 0) -> Revision | None:
        """Return the newest revision, where it is newer than ``after``; None where it is not, or there is none."""


class SharedSources(Protocol):
    """The sources that several processes share, as one of them takes and gives them."""

    async def note_spent(self, spent: Mapping[str, Spent]) -> None:
        """Store what may be spent of keys until the next call, the past minute included, by the first source of each.

        Raises:
            LeaseLost: This process is no member any more.
            StoreError: The store cannot be used.
        """

    async def take_share(self, accounts: Mapping[str, str], intervals: Mapping[str, timedelta] | None = None) -> Share:
        """Remove dead processes, claim free sources, and return what this process has.

        It claims some at a time, those first that are most overdue: a dead process may have had thousands.

        Args:
            accounts: The first source with the same API key, of each source that is configured.
            intervals: The shortest interval of the sources with an API key, by the first of them; those of a key
                without one are never overdue.

        Raises:
            LeaseLost: This process is no member any more.
            StoreError: The store cannot be used.
        """

    async def prepare(self, sources: Collection[str]) -> None:
        """Begin to hand sources over: they are no part of the share any more, and new sessions of relays skip them."""

    async def hand_over(self, sources: Collection[str], spent: Mapping[str, Spent]) -> None:
        """Free sources; what this process does with them has ended, and is saved."""


class Fleet(SharedSources, Protocol):
    """The processes that work on one store, as one of them sees them.

    A process that does not renew its membership for some seconds loses everything: others claim its sources, and the
    store refuses what it writes.

    Attributes:
        slot: A small number that no other living process has.
        processes: How many live, going by the last share; they divide what a receiver allows.
        leads: Whether this process does what one must do for all: prune, deliver notices.
    """

    slot: int
    processes: int
    leads: bool

    @property
    def configurations(self) -> Configurations:
        """The configuration that all of them follow."""

    async def finish_upgrade(self) -> Upgrade:
        """Remove from the store what only older processes need, as far as none of them works on it.

        Raises:
            StoreError: It cannot be done now; nothing was.
        """

    async def follow(self) -> None:
        """Announce what other processes record, until cancelled.

        It announces the events of feeds for which a reader waits, and rings for those who show all.
        """

    async def wait_until_lost(self) -> None:
        """Return as soon as this process is no member any more."""

    @property
    def is_trusted(self) -> bool:
        """Whether this process has renewed its membership in time, so that no other can have its sources.

        Otherwise it asks nothing of an API, and hands nothing to a receiver.
        """

    async def wait_for_trust(self) -> None:
        """Return as soon as it is so."""
