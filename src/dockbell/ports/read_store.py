"""Reads a store beside the process that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from dockbell.core.comparing.page_diff import PURGED, Finding
from dockbell.core.delays import MeasuredDelays
from dockbell.core.model import Event, Feed, Via
from dockbell.core.publishing.settlement import Attempt
from dockbell.core.text_search import TextSearch
from dockbell.ports.delivery import Extent, Footprint, KeyStatus, SinkState, StoredState
from dockbell.ports.fleet import Member
from dockbell.ports.runs import FeedState, Reached, RunRecord


class StoredRecord(msgspec.Struct, frozen=True):
    """What is stored of one record.

    Attributes:
        key: Its key string.
        modified: Its own timestamp.
        fingerprint: Hash of its canonical form.
        revision: Its change count.
        gone_at: Since when it is a tombstone, by our clock; None while it is there.
        suspected_at: When a complete pass did not show it for the first time, by our clock; None while it is shown.
        there_at: S of the last complete pass before that one.
        is_dormant: Absence checks ignore it until it is seen again.
        held_at: S of the first request that showed the reading that is held; None where none is.
        awaited_at: Since when an event of it waits for its detail, by our clock; None where none does.
        row: Its place: rows are read in the order of their places, and a record never changes its own.
        body: Its raw JSON; of a tombstone as it was last, None once that is erased.
    """

    key: str
    modified: datetime | None
    fingerprint: bytes
    revision: int
    gone_at: datetime | None = None
    suspected_at: datetime | None = None
    there_at: datetime | None = None
    is_dormant: bool = False
    held_at: datetime | None = None
    awaited_at: datetime | None = None
    row: int = 0
    body: bytes | None = None

    @property
    def is_purged(self) -> bool:
        """Whether its content was erased on the operator's word, and was not seen since."""
        return self.fingerprint == PURGED


class Noted(msgspec.Struct, frozen=True):
    """What one reading of a record came to that was not simply as stored.

    Attributes:
        at: By our clock.
        via: Which kind of reading it was.
        finding: What it came to.
        modified: The reading's own timestamp.
        fingerprint: What it showed; None where it could not be computed.
        sequence: Of the event that it came to; None where it came to none.
    """

    at: datetime
    via: Via
    finding: Finding
    modified: datetime | None = None
    fingerprint: bytes | None = None
    sequence: int | None = None


class Quarantined(msgspec.Struct, frozen=True):
    """A record that cannot be told apart or read.

    Attributes:
        key: Its key string; empty where it has none.
        problem: What is wrong with it.
        first_at: When it was first met, by our clock.
        last_at: When it was last met, by our clock.
    """

    key: str
    problem: str
    first_at: datetime
    last_at: datetime


class ReadStore(Protocol):
    """A look at a store that another process may be working on."""

    epoch: str

    async def load_feeds(self) -> Sequence[FeedState]:
        """Return every feed's state."""

    async def load_reached(self) -> Mapping[Feed, Reached]:
        """Return how far the passes have come that go on, where they have been saved meanwhile."""

    async def load_sinks(self) -> Sequence[SinkState]:
        """Return how far every sink has come."""

    async def count_records(self) -> Mapping[Feed, int]:
        """Return how many records are stored per feed, tombstones left out."""

    async def read_latest(self, after: int, limit: int) -> Sequence[tuple[int, Event]]:
        """Return events of all feeds as they were recorded, each with its place; negative ``after`` is from the end."""

    async def read_earlier(
        self,
        before: int | None,
        limit: int,
        *,
        feeds: Sequence[Feed] | None = None,
        keys: Sequence[str] | None = None,
        type_: str | None = None,
        change: str | None = None,
        id_: str | None = None,
    ) -> tuple[Sequence[tuple[int, Event]], int | None]:
        """Return chosen events from before a place, newest first, each with its place; and from where to go on.

        Looks through a bounded number, so that it may return fewer, or none, although there are more. None for
        ``before`` begins at the end; None where there are no more.
        """

    async def find_event(self, feed: Feed, sequence: int) -> tuple[datetime, Event] | None:
        """Return an event that is kept, and when it was recorded."""

    async def read_attempts(self, feed: Feed, key: str, limit: int) -> Mapping[str, Sequence[Attempt]]:
        """Return the last attempts to deliver the events of a record, by sink, oldest first; so many in all."""

    async def find_last_changes(self) -> Mapping[Feed, datetime]:
        """Return when the last change of a record was recorded, by feed, where one is kept."""

    async def find_extent(self, feed: Feed) -> Extent | None:
        """Return which events of a feed there are; None where nothing is known of the feed."""

    async def read_events(self, feed: Feed, after: int, limit: int) -> Sequence[Event]:
        """Return events of a feed after a sequence, in order."""

    async def measure_events(self, feed: Feed, after: int, limit: int) -> Sequence[tuple[int, int]]:
        """Return the sequences of a feed's events after a sequence, in order, each with the bytes of its body."""

    async def read_records(self, feed: Feed, after: int, limit: int) -> tuple[int, Sequence[StoredState]]:
        """Return records that are there, by place, after a place; and the number of the feed's last event by then."""

    async def measure_records(self, feed: Feed, after: int, limit: int) -> Sequence[int]:
        """Return the bytes of each of the records that :meth:`read_records` would return."""

    async def read_record(self, feed: Feed, key: str) -> tuple[int, StoredState | None]:
        """Return one record, if anything was ever stored of it, and the number of the feed's last event by then."""

    async def find_record(self, feed_id: int, key: str) -> StoredRecord | None:
        """Return what is stored of a record; None where nothing is."""

    async def read_stored(self, feed_id: int, after: int, limit: int, *, with_gone: bool) -> Sequence[StoredRecord]:
        """Return what is stored of records, by place, after a place; of tombstones only where they are asked for."""

    async def find_records(
        self, feed_id: int, part: str, after: int, limit: int
    ) -> tuple[Sequence[StoredRecord], int | None]:
        """Return records whose keys have a part, tombstones too, by place after a place; and from where to go on.

        Looks through a bounded number, so that it may return fewer, or none, although there are more; None where there
        are no more.
        """

    async def search_records(
        self, feed_id: int, search: TextSearch, after: int, limit: int
    ) -> tuple[Sequence[StoredRecord], int | None]:
        """Return records that have a text, and from where to go on, as :meth:`find_records` does."""

    async def find_suspected(self, feed_id: int, limit: int) -> Sequence[StoredRecord]:
        """Return records that are suspected to be gone, those that were suspected first before the others."""

    async def find_quarantined(self, feed_id: int, limit: int, *, key: str | None = None) -> Sequence[Quarantined]:
        """Return records in quarantine, the last met before the others; those of one key where it is given."""

    async def read_notes(self, feed_id: int, key: str, limit: int) -> Sequence[Noted]:
        """Return the last findings about a record, oldest first."""

    async def read_covering_runs(
        self, feed_id: int, modified: datetime | None, after: datetime, limit: int
    ) -> Sequence[RunRecord]:
        """Return the last runs whose window held a date, oldest first: every pass, and polls asked after a time of S.

        Without a date there are passes only.
        """

    async def read_readings(self, after: datetime) -> Mapping[Feed, Sequence[tuple[datetime, datetime]]]:
        """Return the begin and the end, by our clock, of each complete poll and pass that ended after a time, by feed.

        The oldest come first.
        """

    async def read_delays(self, since: datetime, feed: Feed | None = None) -> Sequence[MeasuredDelays]:
        """Return the measured delays of the quarters of an hour that began then or later, the oldest first.

        Those of one feed, or of all.
        """

    async def read_events_of(
        self, feed_id: int, key: str, limit: int, *, change: str | None = None
    ) -> Sequence[tuple[datetime, Event]]:
        """Return the last events of a key, oldest first, each with when it was recorded; the empty key is the feed."""

    async def find_last(self, change: str) -> Mapping[Feed, Event]:
        """Return the last event of each feed itself, not of a record, that states a change such as ``gap``."""

    async def load_key_statuses(self, feed_id: int, key: str) -> Sequence[KeyStatus]:
        """Return how far each sink has come with the events of a key, by name."""

    async def load_members(self) -> Sequence[Member]:
        """Return the processes that share the store, by slot; none where it has one process at most."""

    async def load_holders(self) -> Mapping[str, str]:
        """Return which process has each source that one has, by its name; none where there is one process at most."""

    async def measure(self) -> Footprint:
        """Return how much of its disk the store uses, and what is left of it."""

    async def aclose(self) -> None:
        """Close it."""
