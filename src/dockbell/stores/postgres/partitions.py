"""The outbox by days (UTC): days ahead are made before anything is recorded in them, days that are over are dropped.

To drop a day takes as long as to look through it once, while a ``DELETE`` takes far longer, and leaves the room to
VACUUM. What is still owed of it moves to ``events_default``, unless it is much: then the day stays, and its events are
deleted one by one. Every event goes to ``events_default``, too, for whose time there is no partition, so that no insert
fails where none could be made: nothing has run for days, say, and a backup held the tables when something began to.
Such events move when theirs is made.

A unique index covers one partition only. Across partitions ``lease.move_feed`` keeps a number from being used twice: it
locks the feed's row, and PostgreSQL refuses the transaction unless this process holds the feed and ``feeds.sequence``
still is the number after which the events were numbered. An event's id contains its number. PostgreSQL draws ``entry``
from one sequence for all partitions.

Every statement on events is planned for all partitions, 25 µs for each. So there are about 16 for ``keep_events``,
wider ones where it is longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from json import dumps
from typing import Final

import msgspec
import psycopg

from dockbell.core.moment import from_micros, to_micros
from dockbell.stores.postgres.schema import LIMIT_LOCKS, TURN
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.dialect import values_of

DAY: Final = 86_400_000_000  # microseconds
_AHEAD: Final = 2 * DAY
_MOST: Final = 16
_MOVED_MOST: Final = 10_000
"""So many owed events of a day are moved: others wait meanwhile."""
_WHOLE_DAYS: Final = timedelta(days=2)
"""Events that are kept for so long are kept until their day may be dropped; to others a day more is much."""
_LIST: Final = (
    "SELECT relname, pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid IN"
    " (SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST('events' AS regclass))"
)
_BOUNDS: Final = re.compile(r"FROM \('?(-?\d+)'?\) TO \('?(-?\d+)'?\)")


class Partition(msgspec.Struct, frozen=True):
    """Holds the events recorded from a time on until before another, in microseconds."""

    first: int
    end: int

    @property
    def name(self) -> str:
        return f"events_{from_micros(self.first):%Y%m%d}"


def list_partitions(connection: Connection) -> list[Partition]:
    """Return those of the outbox but the default one, the oldest first."""
    found = (_BOUNDS.search(bounds) for _, bounds in connection.execute(_LIST))
    return sorted((Partition(int(each[1]), int(each[2])) for each in found if each), key=lambda each: each.first)


# Days ahead ----------------------------------------------------------------------------------------------------------


def extend(connection: Connection, now: datetime, kept: timedelta = timedelta()) -> None:
    """Make the partitions of today and of the days to come, where events are kept for so long.

    Where another session uses the tables nothing is done; the next call does it.
    """
    if not _find_missing(connection, now, kept):
        return
    try:
        with transaction(connection):
            connection.execute(f"SELECT pg_advisory_xact_lock({TURN})")  # another process may be making them
            connection.execute(LIMIT_LOCKS)
            for partition in _find_missing(connection, now, kept):
                for statement in make(partition):
                    connection.execute(statement)
    except psycopg.errors.LockNotAvailable:
        pass


def _find_missing(connection: Connection, now: datetime, kept: timedelta) -> Sequence[Partition]:
    known = list_partitions(connection)
    width = DAY * max(1, -(-kept.days // _MOST))
    at = to_micros(now)
    first, missing = at - at % DAY, []
    while first <= at + _AHEAD:
        end = next((each.end for each in known if each.first <= first < each.end), 0)
        if not end:
            end = min([first + width, *(each.first for each in known if each.first > first)])
            missing.append(Partition(first, end))
        first = end
    return missing


def make(partition: Partition) -> Iterator[str]:
    """Return the statements that make a partition.

    It is attached, because to be made as a partition it would lock out those who read; the default one is locked, whose
    rows the server looks through.
    """
    name, span = partition.name, f"recorded_at >= {partition.first} AND recorded_at < {partition.end}"
    yield f"CREATE TABLE {name} (LIKE events_default INCLUDING INDEXES)"
    yield "LOCK TABLE events IN SHARE UPDATE EXCLUSIVE MODE"
    yield "LOCK TABLE events_default IN ACCESS EXCLUSIVE MODE"
    yield (
        f"WITH moved AS (DELETE FROM events_default WHERE {span} RETURNING *) INSERT INTO {name} SELECT * FROM moved"
    )
    yield f"ALTER TABLE events ATTACH PARTITION {name} FOR VALUES FROM ({partition.first}) TO ({partition.end})"


# Days that are over --------------------------------------------------------------------------------------------------


def find_rest(connection: Connection, before: datetime, now: datetime) -> datetime | None:
    """Return before when events are recorded that may be deleted one by one; None where there is none of them."""
    if now - before < _WHOLE_DAYS:
        return before
    at = to_micros(before)
    day = next((each.first for each in list_partitions(connection) if each.first <= at < each.end), at)
    (is_any,) = connection.execute(f"SELECT EXISTS (SELECT 1 FROM events WHERE recorded_at < {day})").fetchone()
    return from_micros(day) if is_any else None


def drop(connection: Connection, partition: Partition, sinks: Sequence[str]) -> int:
    """Drop a partition, but for the events in it that one of these sinks owes; return how many events went.

    Nothing is done where many are owed, or where another session uses the tables.
    """
    values = {"sinks": dumps(sinks)}
    name = partition.name
    owed = _OWED.format(name=name)
    (many,) = connection.execute(
        f"SELECT count(*) > {_MOVED_MOST} FROM ({owed} LIMIT {_MOVED_MOST + 1}) AS owed", values
    ).fetchone()
    if many:
        return 0
    try:
        with transaction(connection):
            connection.execute(LIMIT_LOCKS)
            # A page commit locks events before feeds, too: another order could deadlock with it.
            connection.execute(f"ALTER TABLE events DETACH PARTITION {name}")
            connection.execute("LOCK TABLE feeds IN EXCLUSIVE MODE")
            connection.execute(
                f"WITH owed AS ({owed}), moved AS (DELETE FROM {name} AS event USING owed"
                " WHERE event.feed = owed.feed AND event.sequence = owed.sequence RETURNING event.*)"
                " INSERT INTO events OVERRIDING SYSTEM VALUE SELECT * FROM moved",
                values,
            )
            connection.execute(
                f"UPDATE feeds SET pruned = last FROM (SELECT feed, max(sequence) AS last FROM {name} GROUP BY feed)"
                " AS gone WHERE id = feed AND pruned < last"
            )
            connection.execute(_TAKE_BACK.format(name=name), values)
            (gone,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
            connection.execute(f"DROP TABLE {name}")
    except psycopg.errors.LockNotAvailable:
        return 0
    return int(gone)


_NAMED: Final = f"sink IN (SELECT value FROM {values_of(':sinks')})"
_OWED: Final = f"""
    SELECT event.feed, event.sequence
        FROM (SELECT feed, min(sequence) AS settled FROM positions WHERE {_NAMED} GROUP BY feed) AS reached
        JOIN {{name}} AS event ON event.feed = reached.feed AND event.sequence > settled
    UNION ALL SELECT event.feed, event.sequence FROM dead_letters AS due
        JOIN {{name}} AS event ON event.feed = due.feed AND event.sequence = due.sequence WHERE {_NAMED}
    UNION ALL SELECT event.feed, event.sequence FROM replays AS due
        JOIN {{name}} AS event ON event.feed = due.feed AND event.sequence = due.sequence WHERE {_NAMED}
    UNION ALL SELECT event.feed, event.sequence FROM blocked AS due
        JOIN {{name}} AS event ON event.feed = due.feed AND event.key = due.key AND event.sequence >= due.sequence
        WHERE {_NAMED}
"""
"""The same as ``pruning.find_prunable`` leaves, for a whole partition."""
_TAKE_BACK: Final = f"""
    UPDATE positions SET sequence = lost.first - 1 FROM (
        SELECT due.sink, due.feed, min(event.sequence) AS first FROM blocked AS due
            JOIN {{name}} AS event ON event.feed = due.feed AND event.key = due.key AND event.sequence >= due.sequence
            WHERE NOT {_NAMED} GROUP BY due.sink, due.feed
    ) AS lost WHERE positions.sink = lost.sink AND positions.feed = lost.feed AND positions.sequence >= lost.first
"""
"""Lets the position of a sink that left show what it has lost, as ``pruning.prune_events`` does."""
