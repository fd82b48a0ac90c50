"""What a subscriber remembers: ids that it has seen, what did not arrive, and a copy of the records.

A record's revisions count up by one, so a subscriber that gets every change of it sees what is missing as soon as the
next one comes. A feed's sequence does the same for a reader in order, which only pull feeds promise.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from dockbell.core.diff import apply
from dockbell.core.model import JSON
from dockbell.subscriber.errors import GapsUnknowable
from dockbell.subscriber.events import (
    DELETED,
    RESTORED,
    SNAPSHOT,
    STORE_LOST,
    VIA_STATE,
    Change,
    Event,
    Gap,
    Rebaselined,
)


class SeenIds(Protocol):
    """A memory of ids, since some events come twice. Ask, do what the event wants, then add it.

    A durable one adds the id in the transaction in which it does what the event wants; then a crash repeats nothing.
    """

    def __contains__(self, event_id: object, /) -> bool: ...

    def add(self, event_id: str, /) -> None: ...


class Seen:
    """The latest ids, in memory.

    Args:
        limit: How many; about 150 bytes each. Repetitions come within seconds of each other but for retries (three
            days) and replays; a :class:`State` drops those that are forgotten here by their revision.
    """

    def __init__(self, limit: int = 100_000) -> None:
        if limit < 1:
            raise ValueError(f"limit: must be 1 or more, got {limit}")
        self._limit = limit
        self._ids: dict[str, None] = {}

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, event_id: str) -> None:
        """Remember an id; the one that was added first is forgotten when there are too many."""
        self._ids[event_id] = None
        if len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]


class Missing(NamedTuple):
    """Changes or events that were made and did not arrive, or not yet.

    Attributes:
        where: The ``partitionkey`` of a record, when they are revisions; of a feed, when they are sequence numbers.
        first: The first of the numbers.
        last: The last of them.
    """

    where: str
    first: int
    last: int


class RevisionGaps:
    """Finds missing changes of records by their revisions, for subscribers of a sink that holds no change back.

    Args:
        changes: As in the sink's table of the configuration; also when an MQTT topic filter names a change.
        where: As in the sink's table.
        from_beginning: This subscriber has had every event since dockbell's first: a record that it never heard of
            has had no change. Otherwise such a record's chain begins with the first event that comes.

    Raises:
        GapsUnknowable: The sink holds changes back: what is filtered looks the same as what was lost.
    """

    def __init__(
        self, *, changes: Sequence[str] | None = None, where: str | None = None, from_beginning: bool = False
    ) -> None:
        for name, value in {"changes": changes, "where": where}.items():
            if value is not None:
                raise GapsUnknowable(
                    f"gaps: the sink has a filter, {name} = {value!r}, and what it holds back looks the same as what "
                    "was lost; subscribe without it, or read the pull feed"
                )
        self._from_beginning = from_beginning

    def find(self, event: Event, seen: int | None) -> Missing | None:
        """Return what is missing before an event that is not applied yet.

        ``seen`` is the record's highest revision so far. Nothing is missing before a snapshot, or what a sink is told
        when it begins: they say how a record is. Named events and statements have no revision of their own.
        """
        data = event.data
        if seen is None and self._from_beginning:
            seen = 0
        if type(data) is not Change or data.change == SNAPSHOT or data.via == VIA_STATE or seen is None:
            return None
        return Missing(event.partitionkey, seen + 1, data.revision - 1) if data.revision > seen + 1 else None


class SequenceGaps:
    """Finds missing events of one feed by their sequence, for those who read all of it in order: pull feeds only.

    Webhooks and MQTT keep the order of each record, not that of a feed, so there a number that is missing may be on
    its way.

    Args:
        after: The sequence of the position from which on the feed is read.
    """

    def __init__(self, after: int) -> None:
        self._last = after

    def find(self, event: Event) -> Missing | None:
        last, self._last = self._last, max(self._last, event.sequence)
        return Missing(event.feed, last + 1, event.sequence - 1) if event.sequence > last + 1 else None


class Copy(msgspec.Struct, frozen=True):
    """What is known of one record.

    Attributes:
        revision: The highest that was seen; None where revisions begin anew.
        sequence: Of the event that told it, or the one up to which it was read; 0 where that is unknown.
        record: Its content; None when it is gone.
        is_current: Whether ``record`` is that of ``revision``; if not, an event told only that it changed.
        is_exact: Whether ``revision`` is known to be the latest; it is not where a reading showed the record gone.
    """

    revision: int | None
    sequence: int
    record: dict[str, JSON] | None
    is_current: bool = True
    is_exact: bool = True


class Effect(StrEnum):
    """What an event did to the copy.

    Attributes:
        APPLIED: The copy is as the event says.
        OLD: The event tells a revision that was seen, or an earlier one.
        ASIDE: It tells nothing of a record: a named event, a statement, a notice, a test.
        INCOMPLETE: It carries less than the copy needs: see :attr:`State.stale`.
        UNREAD: Records of the feed changed without an event of their own: see :attr:`State.unread`.
    """

    APPLIED = "applied"
    OLD = "old"
    ASIDE = "aside"
    INCOMPLETE = "incomplete"
    UNREAD = "unread"


class Taken(NamedTuple):
    """What an event came to.

    Attributes:
        effect: What it did to the copy.
        missing: Changes of the record that did not arrive before it; always None without ``gaps``.
    """

    effect: Effect
    missing: Missing | None = None


class State(Mapping[str, JSON]):
    """The records that there are, by ``partitionkey``: ``state["main/shipments/shp_123"]``.

    Repetitions, late ones included, and any order among records leave it the same. It is for one dockbell and one
    thread at a time. A record that is gone leaves its revision behind, so that what comes late cannot bring it back.

    Attributes:
        copies: What is known of each record, those that are gone included; to be changed by the methods only.
        stale: The ``partitionkey`` of each record whose latest change no event told in full: read it from dockbell.
        unread: The feeds of which all stored records must be read from dockbell.

    Args:
        copies: Where the copies are kept: any mapping, such as one on disk; a dict where left out.
        gaps: Looks for missing changes; None to look for none.
    """

    def __init__(self, copies: MutableMapping[str, Copy] | None = None, *, gaps: RevisionGaps | None = None) -> None:
        self.copies: MutableMapping[str, Copy] = {} if copies is None else copies
        self.stale = {place for place, copy in self.copies.items() if not copy.is_current}
        self.unread: set[str] = set()
        self._gaps = gaps
        self._loaded: dict[str, int] = {}

    def __getitem__(self, place: str) -> JSON:
        record = self.copies[place].record
        if record is None:
            raise KeyError(place)
        return record

    def __iter__(self) -> Iterator[str]:
        return (place for place, copy in self.copies.items() if copy.record is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    # What is told -----------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> Taken:
        """Take an event in."""
        data = event.data
        if type(data) is not Change:  # a named event has the revision of its change, which tells everything
            return Taken(self._hear(event))
        known = self.copies.get(event.partitionkey)
        seen = None if known is None else known.revision
        if seen is not None and data.revision < seen:
            return Taken(Effect.OLD)
        copy = _advance(known, data, event.sequence)
        # The same revision once more is of use where it says what was left out the first time.
        if data.revision == seen and (known is None or known.is_current or not copy.is_current):
            return Taken(Effect.OLD)
        missing = self._find_missing(event, data, known)
        self._set(event.partitionkey, copy)
        return Taken(Effect.APPLIED if copy.is_current else Effect.INCOMPLETE, missing)

    def _hear(self, event: Event) -> Effect:
        if isinstance(event.data, Gap) and event.data.reason == STORE_LOST:
            self.forget(event.feed)
        elif isinstance(event.data, Rebaselined) and event.sequence > self._loaded.get(event.feed, -1):
            for place in self._places(event.feed):
                copy = self.copies[place]
                self._set(place, msgspec.structs.replace(copy, is_current=copy.record is None))
            self.unread.add(event.feed)
        else:
            return Effect.ASIDE
        return Effect.UNREAD

    def forget(self, feed: str) -> None:
        """Let the revisions of a feed begin anew; what its records were is kept until something newer is known."""
        self.unread.add(feed)
        self._loaded.pop(feed, None)
        for place in self._places(feed):
            record = self.copies[place].record
            self._set(place, None if record is None else Copy(None, 0, record, is_current=False))

    # What is read -----------------------------------------------------------------------------------------------------

    def put(self, place: str, *, revision: int, sequence: int, record: dict[str, JSON] | None) -> None:
        """Take in a record as dockbell has it stored, unless a later revision of it was seen meanwhile.

        ``place`` is its ``partitionkey``, ``sequence`` that of the position that came with it.
        """
        known = self.copies.get(place)
        if known is None or known.revision is None or known.revision <= revision:
            self._set(place, Copy(revision, sequence, record))

    def drop(self, place: str) -> None:
        """Forget a record that dockbell knows nothing of."""
        if place in self.copies:
            self._set(place, None)

    def close(self, feed: str, listed: Container[str], sequence: int) -> None:
        """End the reading of all stored records of a feed: what was not listed, and not told of since, is gone.

        ``listed`` has the ``partitionkey`` of each record that there is; ``sequence`` is that of the feed's last event
        when the reading began.
        """
        for place in self._places(feed):
            copy = self.copies[place]
            if place in listed or copy.sequence > sequence:
                continue
            if copy.revision is None:
                self._set(place, None)
            else:  # its deletion was a change too where it is news, and perhaps not the only one
                is_news = copy.record is not None or not copy.is_current
                self._set(place, Copy(copy.revision + is_news, sequence, None, is_exact=False))
        self._loaded[feed] = sequence
        self.unread.discard(feed)

    def _set(self, place: str, copy: Copy | None) -> None:
        if copy is None:
            del self.copies[place]
        else:
            self.copies[place] = copy
        if copy is None or copy.is_current:
            self.stale.discard(place)
        else:
            self.stale.add(place)

    def _places(self, feed: str) -> list[str]:
        return [place for place in self.copies if place.startswith(f"{feed}/")]

    def _find_missing(self, event: Event, data: Change, known: Copy | None) -> Missing | None:
        seen = None if known is None else known.revision
        if self._gaps is None or (known is not None and (seen is None or not known.is_exact)):
            return None
        if seen is None and event.feed in self._loaded:
            if data.change == RESTORED:
                return None  # all that there was is known, but not what had been deleted
            seen = 0
        return self._gaps.find(event, seen)


def _advance(known: Copy | None, data: Change, sequence: int) -> Copy:
    """Return the copy after a change, not current where the change does not carry enough."""
    if data.change == DELETED:
        return Copy(data.revision, sequence, None)
    if data.after is not None:
        return Copy(data.revision, sequence, data.after)
    record = None if known is None else known.record
    is_base = known is not None and known.is_current and known.revision == data.revision - 1
    if data.patch is not None and record is not None and is_base:
        with suppress(ValueError):  # members that dockbell ignores may have come or gone without an event
            return Copy(data.revision, sequence, apply(record, data.patch))
    return Copy(data.revision, sequence, record, is_current=False)
