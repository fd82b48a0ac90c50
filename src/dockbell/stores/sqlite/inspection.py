"""Statements that only look: what ``status``, ``events`` and ``check`` show."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from dockbell.core.model import Event, Feed
from dockbell.core.moment import from_micros
from dockbell.ports import SinkState


def load_sinks(connection: sqlite3.Connection) -> Sequence[SinkState]:
    """Return how far each sink has come that the store knows, by name."""
    return [
        SinkState(name, owed, blocked, dead, None if oldest is None else from_micros(oldest), error)
        for name, owed, blocked, dead, oldest, error in connection.execute(
            """
            SELECT name,
                (SELECT coalesce(sum(feeds.sequence - positions.sequence), 0) FROM positions
                    JOIN feeds ON feeds.id = positions.feed WHERE positions.sink = name)
                + (SELECT count(*) FROM blocked
                    JOIN positions ON positions.sink = blocked.sink AND positions.feed = blocked.feed
                    JOIN events ON events.feed = blocked.feed AND events.key = blocked.key
                        AND events.sequence BETWEEN blocked.sequence AND positions.sequence
                    WHERE blocked.sink = name),
                (SELECT count(*) FROM blocked WHERE blocked.sink = name),
                (SELECT count(*) FROM dead_letters WHERE dead_letters.sink = name),
                (SELECT min(recorded_at) FROM (
                    SELECT recorded_at FROM positions JOIN events
                        ON events.feed = positions.feed AND events.sequence = positions.sequence + 1
                        WHERE positions.sink = name
                    UNION ALL
                    SELECT recorded_at FROM blocked JOIN events
                        ON events.feed = blocked.feed AND events.sequence = blocked.sequence
                        WHERE blocked.sink = name)),
                coalesce((SELECT error FROM blocked WHERE blocked.sink = name AND error <> ''
                    ORDER BY due LIMIT 1), '')
            FROM (SELECT DISTINCT sink AS name FROM positions) ORDER BY name
            """
        )
    ]


def count_records(connection: sqlite3.Connection) -> Mapping[Feed, int]:
    """Return how many records are stored per feed, tombstones left out."""
    return {
        Feed(source, resource): count
        for source, resource, count in connection.execute(
            "SELECT source, resource, (SELECT count(*) FROM records WHERE feed = feeds.id AND gone_at IS NULL)"
            " FROM feeds ORDER BY id"
        )
    }


def read_latest(connection: sqlite3.Connection, after: int, limit: int) -> Sequence[tuple[int, Event]]:
    """Return events of all feeds in the order in which they were recorded, each with its place in that order.

    Args:
        connection: To the store.
        after: A place that an earlier call returned; a negative one counts from the end.
        limit: At most so many.
    """
    if after < 0:
        (last,) = connection.execute("SELECT coalesce(max(entry), 0) FROM events").fetchone()
        after = max(0, last + after)
    return [
        (place, Event(Feed(source, resource), *event))
        for place, source, resource, *event in connection.execute(
            "SELECT entry, source, resource, events.sequence, events.key, events.id, type, change, revision,"
            " body FROM events JOIN feeds ON feeds.id = feed WHERE entry > ? ORDER BY entry LIMIT ?",
            (after, limit),
        )
    ]
