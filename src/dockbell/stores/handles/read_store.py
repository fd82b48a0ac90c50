"""Reads the store beside the process that holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from dockbell.core.delays import MeasuredDelays
from dockbell.core.model import Event, Feed
from dockbell.core.publishing.settlement import Attempt
from dockbell.core.text_search import TextSearch
from dockbell.ports import (
    Extent,
    FeedState,
    Footprint,
    KeyStatus,
    Member,
    Noted,
    Quarantined,
    Reached,
    ReadStore,
    RunRecord,
    SinkState,
    StoredRecord,
    StoredState,
)
from dockbell.stores.handles.session import Session
from dockbell.stores.sql import attempts, browsing, delays, delivery, feeds, inspection, runs
from dockbell.stores.sql.connection import Connection

_T = TypeVar("_T")
_P = ParamSpec("_P")


class SqlReadStore(ReadStore):
    """Reads the store: locks nothing, writes nothing."""

    def __init__(self, session: Session) -> None:
        self.epoch = session.epoch
        self._session = session

    async def _read(
        self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        return await self._session.do(function, *args, **kwargs)

    async def load_feeds(self) -> Sequence[FeedState]:
        return await self._read(feeds.load_feeds)

    async def load_reached(self) -> Mapping[Feed, Reached]:
        return await self._read(runs.load_reached)

    async def load_sinks(self) -> Sequence[SinkState]:
        return await self._read(inspection.load_sinks)

    async def count_records(self) -> Mapping[Feed, int]:
        return await self._read(inspection.count_records)

    async def read_latest(self, after: int, limit: int) -> Sequence[tuple[int, Event]]:
        return await self._read(inspection.read_latest, after, limit)

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
        wanted = browsing.Wanted(feeds, keys, type_, change, id_)
        return await self._read(browsing.read_earlier, before, limit, wanted)

    async def find_event(self, feed: Feed, sequence: int) -> tuple[datetime, Event] | None:
        return await self._read(browsing.find_event, feed, sequence)

    async def read_attempts(self, feed: Feed, key: str, limit: int) -> Mapping[str, Sequence[Attempt]]:
        return await self._read(attempts.read_attempts, feed, key, limit)

    async def find_last_changes(self) -> Mapping[Feed, datetime]:
        return await self._read(browsing.find_last_changes)

    async def find_extent(self, feed: Feed) -> Extent | None:
        return await self._read(delivery.find_extent, feed)

    async def read_events(self, feed: Feed, after: int, limit: int) -> Sequence[Event]:
        return await self._read(delivery.read_events, feed, after, limit)

    async def measure_events(self, feed: Feed, after: int, limit: int) -> Sequence[tuple[int, int]]:
        return await self._read(inspection.measure_events, feed, after, limit)

    async def read_records(self, feed: Feed, after: int, limit: int) -> tuple[int, Sequence[StoredState]]:
        return await self._read(inspection.read_records, feed, after, limit)

    async def measure_records(self, feed: Feed, after: int, limit: int) -> Sequence[int]:
        return await self._read(inspection.measure_records, feed, after, limit)

    async def read_record(self, feed: Feed, key: str) -> tuple[int, StoredState | None]:
        return await self._read(inspection.read_record, feed, key)

    async def find_record(self, feed_id: int, key: str) -> StoredRecord | None:
        return await self._read(inspection.find_record, feed_id, key)

    async def read_stored(self, feed_id: int, after: int, limit: int, *, with_gone: bool) -> Sequence[StoredRecord]:
        return await self._read(inspection.read_stored, feed_id, after, limit, with_gone)

    async def find_records(
        self, feed_id: int, part: str, after: int, limit: int
    ) -> tuple[Sequence[StoredRecord], int | None]:
        return await self._read(inspection.find_records, feed_id, part, after, limit)

    async def search_records(
        self, feed_id: int, search: TextSearch, after: int, limit: int
    ) -> tuple[Sequence[StoredRecord], int | None]:
        return await self._read(inspection.search_records, feed_id, search, after, limit)

    async def find_suspected(self, feed_id: int, limit: int) -> Sequence[StoredRecord]:
        return await self._read(inspection.find_suspected, feed_id, limit)

    async def find_quarantined(self, feed_id: int, limit: int, *, key: str | None = None) -> Sequence[Quarantined]:
        return await self._read(inspection.find_quarantined, feed_id, limit, key)

    async def read_notes(self, feed_id: int, key: str, limit: int) -> Sequence[Noted]:
        return await self._read(inspection.read_notes, feed_id, key, limit)

    async def read_covering_runs(
        self, feed_id: int, modified: datetime | None, after: datetime, limit: int
    ) -> Sequence[RunRecord]:
        return await self._read(inspection.read_covering_runs, feed_id, modified, after, limit)

    async def read_readings(self, after: datetime) -> Mapping[Feed, Sequence[tuple[datetime, datetime]]]:
        return await self._read(inspection.read_readings, after)

    async def read_delays(self, since: datetime, feed: Feed | None = None) -> Sequence[MeasuredDelays]:
        return await self._read(delays.read_delays, since, feed)

    async def read_events_of(
        self, feed_id: int, key: str, limit: int, *, change: str | None = None
    ) -> Sequence[tuple[datetime, Event]]:
        return await self._read(inspection.read_events_of, feed_id, key, limit, change)

    async def find_last(self, change: str) -> Mapping[Feed, Event]:
        return await self._read(inspection.find_last, change)

    async def load_key_statuses(self, feed_id: int, key: str) -> Sequence[KeyStatus]:
        return await self._read(inspection.load_key_statuses, feed_id, key)

    async def load_members(self) -> Sequence[Member]:
        return await self._session.load_members()

    async def load_holders(self) -> Mapping[str, str]:
        return await self._session.load_holders()

    async def measure(self) -> Footprint:
        return await self._session.measure()

    async def aclose(self) -> None:
        await self._session.aclose()
