"""A copy of the records, made of their events."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, MutableMapping
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dockbell.core.diff import apply
from dockbell.core.model import JSON
from dockbell.subscriber.events import DELETED, RESTORED, STORE_LOST, Change, Event, Gap, Rebaselined
from dockbell.subscriber.gaps import Missing, RevisionGaps


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
    """What an event did to the copy."""

    APPLIED = "applied"
    OLD = "old"  # it tells a revision that was seen, or an earlier one
    ASIDE = "aside"  # it tells nothing of a record: a named event, a statement, a notice, a test
    INCOMPLETE = "incomplete"  # it carries less than the copy needs: see State.stale
    UNREAD = "unread"  # records of the feed changed without an event of their own: see State.unread


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
        """Take in what is no change of a record."""
        if isinstance(event.data, Gap) and event.data.reason == STORE_LOST:
            self.forget(event.feed)
        elif isinstance(event.data, Rebaselined) and event.sequence > self._loaded.get(event.feed, -1):
            for place in self._places(event.feed):
                self._set(
                    place, msgspec.structs.replace(self.copies[place], is_current=self.copies[place].record is None)
                )
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

        Args:
            place: Its ``partitionkey``.
            revision: Its change count.
            sequence: The last event of the feed that is in it for certain; the position that came with it.
            record: Its content; None when it is gone.
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

        Args:
            feed: ``SOURCE/RESOURCE``.
            listed: The ``partitionkey`` of each record that there is.
            sequence: The last event of the feed when the reading began.
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
        if self._gaps is None or (known is not None and (known.revision is None or not known.is_exact)):
            return None
        seen = None if known is None else known.revision
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
