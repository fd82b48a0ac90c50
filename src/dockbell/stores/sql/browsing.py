"""Statements that go back through the events, as people do who look for one."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from typing import Any, Final

import msgspec

from dockbell.core.model import Event, Feed
from dockbell.core.moment import from_micros
from dockbell.stores.sql.connection import Connection, reading
from dockbell.stores.sql.dialect import BY_KEY, values_of

LOOKED_MOST: Final = 20_000
"""So many events are looked through at once, of each feed where feeds are chosen."""

_COLUMNS: Final = "events.entry, source, resource, events.sequence, events.key, events.id, type, change, revision, body"
_EVENT: Final = f"{_COLUMNS} FROM events JOIN feeds ON feeds.id = feed"


class Wanted(msgspec.Struct, frozen=True):
    """Which events are looked for; None leaves none out."""

    feeds: Sequence[Feed] | None = None
    keys: Sequence[str] | None = None
    type_: str | None = None
    change: str | None = None
    id_: str | None = None


def read_earlier(
    connection: Connection, before: int | None, limit: int, wanted: Wanted
) -> tuple[Sequence[tuple[int, Event]], int | None]:
    """Return events from before a place, newest first, each with its place; and from where to go on.

    The events of one feed lie in one order by their sequences and by their places: a feed is gone through by its own
    index, all feeds by the places. Each comes down to some depth; what lies below the highest of these is left for the
    next time, lest it be out of order.
    """
    with reading(connection):
        if before is None:
            before = _find_end(connection) + 1
        if wanted.feeds is None and wanted.keys is None:
            lanes = [_read_all(connection, before, limit, wanted)]
        else:
            lanes = [
                _read_feed(connection, feed_id, before, limit, wanted)
                for feed_id in _find_feeds(connection, wanted.feeds)
            ]
    floor = max((depth for _, depth in lanes), default=0)
    found = sorted((each for events, _ in lanes for each in events if each[0] >= floor), reverse=True, key=_place)
    if len(found) > limit:
        found = found[:limit]
        floor = found[-1][0]
    return found, floor or None


def find_event(connection: Connection, feed: Feed, sequence: int) -> tuple[datetime, Event] | None:
    row = connection.execute(
        f"SELECT recorded_at, {_EVENT} WHERE source = ? AND resource = ? AND events.sequence = ?",
        (*astuple(feed), sequence),
    ).fetchone()
    return None if row is None else (from_micros(row[0]), _read(row[1:])[1])


def find_last_changes(connection: Connection) -> Mapping[Feed, datetime]:
    return {
        Feed(source, resource): from_micros(recorded_at)
        for source, resource, recorded_at in connection.execute(
            "SELECT * FROM (SELECT source, resource,"
            " (SELECT recorded_at FROM events WHERE feed = feeds.id AND key <> '' ORDER BY sequence DESC LIMIT 1)"
            " AS recorded_at FROM feeds) AS last WHERE recorded_at IS NOT NULL"
        )
    }


_Lane = tuple[list[tuple[int, Event]], int]
"""Events, newest first, and the place down to which all of them were looked through; 0 where that is the beginning."""


def _read_all(connection: Connection, before: int, limit: int, wanted: Wanted) -> _Lane:
    lowest = max(0, before - LOOKED_MOST)
    rows = connection.execute(
        f"SELECT {_EVENT} WHERE entry < :before AND entry >= :lowest AND {_CHOSEN} ORDER BY entry DESC LIMIT :limit",
        {"before": before, "lowest": lowest, "limit": limit, **_values(wanted)},
    )
    (first,) = connection.execute("SELECT coalesce(min(entry), 0) FROM events").fetchone()
    return _end([_read(row) for row in rows], limit, lowest if lowest > first else 0)


def _read_feed(connection: Connection, feed_id: int, before: int, limit: int, wanted: Wanted) -> _Lane:
    # Each by itself is the end of an index; asked for together, they would be looked for in all of it.
    first, end = connection.execute(
        "SELECT (SELECT coalesce(min(sequence), 0) FROM events WHERE feed = :feed),"
        " (SELECT coalesce(max(sequence), -1) FROM events WHERE feed = :feed) + 1",
        {"feed": feed_id},
    ).fetchone()
    places = _Places(connection, feed_id, first, end)
    top = first + bisect_left(places, before)
    # By key there is an index, and of one record there are never many.
    lowest = first if wanted.keys is not None else max(first, top - LOOKED_MOST)
    by_key = BY_KEY, f" AND events.key IN (SELECT value FROM {values_of(':keys')})"
    hint, chosen = ("", "") if wanted.keys is None else by_key
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events {hint} JOIN feeds ON feeds.id = feed"
        f" WHERE feed = :feed AND events.sequence < :top AND events.sequence >= :lowest{chosen} AND {_CHOSEN}"
        " ORDER BY events.sequence DESC LIMIT :limit",
        {"feed": feed_id, "top": top, "lowest": lowest, "limit": limit, **_values(wanted)},
    )
    return _end([_read(row) for row in rows], limit, places[lowest - first] if lowest > first else 0)


class _Places(Sequence[int]):
    """The places of the events of a feed, by their sequences from the first on, each looked up when it is asked for.

    Where an event was pruned, the next one's place stands.
    """

    def __init__(self, connection: Connection, feed_id: int, first: int, end: int) -> None:
        self._connection = connection
        self._feed_id = feed_id
        self._first = first
        self._length = end - first

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        row = self._connection.execute(
            "SELECT entry FROM events WHERE feed = ? AND sequence >= ? ORDER BY sequence LIMIT 1",
            (self._feed_id, self._first + index),
        ).fetchone()
        return row[0]


_CHOSEN: Final = (
    "(:type IS NULL OR type = :type) AND (:change IS NULL OR change = :change) AND (:id IS NULL OR events.id = :id)"
)


def _values(wanted: Wanted) -> dict[str, Any]:
    return {
        "type": wanted.type_,
        "change": wanted.change,
        "id": wanted.id_,
        "keys": None if wanted.keys is None else json.dumps(wanted.keys),
    }


def _end(events: list[tuple[int, Event]], limit: int, lowest: int) -> _Lane:
    return events, events[-1][0] if len(events) == limit else lowest


def _find_end(connection: Connection) -> int:
    (last,) = connection.execute("SELECT coalesce(max(entry), 0) FROM events").fetchone()
    return int(last)


def _find_feeds(connection: Connection, feeds: Sequence[Feed] | None) -> list[int]:
    return [
        number
        for number, source, resource in connection.execute("SELECT id, source, resource FROM feeds")
        if feeds is None or Feed(source, resource) in feeds
    ]


def _read(row: Sequence[Any]) -> tuple[int, Event]:
    place, source, resource, *event = row
    return place, Event(Feed(source, resource), *event)


def _place(found: tuple[int, Event]) -> int:
    return found[0]
