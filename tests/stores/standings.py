"""Sinks that stand somewhere in a store, written there as a relay would have: what tests of operators begin with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dockbell.core.model import Feed
from dockbell.core.moment import to_micros
from tests.fakes import NOON
from tests.stores.pages import FEED


def write(path: Path, statement: str, *values: object) -> None:
    """Change a store by hand."""
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


def read(path: Path, query: str, *values: object) -> list[tuple[object, ...]]:
    """Return what a query of a store finds."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, values).fetchall()


def _find_id(path: Path, feed: Feed) -> object:
    return read(path, "SELECT id FROM feeds WHERE source = ? AND resource = ?", feed.source, feed.resource)[0][0]


def stand(path: Path, sink: str, position: int, *, origin: int = 0, feed: Feed = FEED) -> None:
    """Let a sink have settled a feed up to a position."""
    write(
        path,
        "INSERT OR REPLACE INTO positions (sink, feed, sequence, origin) VALUES (?, ?, ?, ?)",
        *(sink, _find_id(path, feed), position, origin),
    )


def block(path: Path, sink: str, key: str, sequence: int, *, held: bool = False, feed: Feed = FEED) -> None:
    """Let a key of a sink be blocked, or on hold."""
    write(
        path,
        "INSERT INTO blocked (sink, feed, key, sequence, attempts, due, error, held)"
        " VALUES (?, ?, ?, ?, 3, ?, 'HTTP 503', ?)",
        *(sink, _find_id(path, feed), key, sequence, to_micros(NOON), held),
    )


def kill(path: Path, sink: str, key: str, sequence: int, *, feed: Feed = FEED, error: str = "HTTP 422") -> None:
    """Let an event be a dead letter of a sink."""
    write(
        path,
        "INSERT INTO dead_letters (sink, feed, sequence, key, attempts, died_at, error) VALUES (?, ?, ?, ?, 1, ?, ?)",
        *(sink, _find_id(path, feed), sequence, key, to_micros(NOON), error),
    )


def waiting(path: Path, sink: str) -> list[tuple[str, int]]:
    """Return the replays of a sink that wait, each as a feed and a sequence, in the order in which they were asked."""
    found = read(
        path,
        "SELECT source || '/' || resource, replays.sequence FROM replays JOIN feeds ON feeds.id = replays.feed"
        " WHERE sink = ? ORDER BY replays.id",
        sink,
    )
    return [(str(feed), int(str(sequence))) for feed, sequence in found]
