"""Sinks that stand somewhere in a store, written there as a relay would have: what tests of operators begin with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from dockbell.core.model import Feed
from dockbell.core.moment import to_micros
from dockbell.stores.postgres.connection import NoFence, PostgresConnection
from dockbell.stores.sql.connection import Connection
from tests.fakes import NOON
from tests.stores.pages import FEED
from tests.stores.places import Place

_FILE_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table'"
_DATABASE_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'holders'"
ATTEMPTS: Final = (
    "event  at                    sink  attempt  result                                          took     answer",
    "#4     2026-11-21 12:00:00Z  erp   1        failed: HTTP 503; next at 2026-11-21 12:00:05Z  0.034 s  busy",
    "#4     2026-11-21 12:00:05Z  erp   2        delivered, HTTP 200                             1.200 s  thanks",
)
"""How the attempts of :func:`note_attempts` at the event 4 are printed."""
_ALL: Final = "SELECT * FROM "


def write(path: Place, statement: str, *values: object) -> None:
    """Change a store by hand."""
    with _opened(path) as connection:
        assert connection.execute(statement, values).rowcount > 0


def read(path: Place, query: str, *values: object) -> list[tuple[object, ...]]:
    """Return what a query of a store finds."""
    with _opened(path) as connection:
        return connection.execute(query, values).fetchall()


def dump(path: Place) -> dict[str, list[tuple[object, ...]]]:
    """Return all that is in the tables of a store, but in that of the processes."""
    query = _FILE_TABLES if isinstance(path, Path) else _DATABASE_TABLES
    with _opened(path) as connection:
        names = [name for (name,) in connection.execute(query).fetchall()]
        return {name: sorted(connection.execute(_ALL + name).fetchall(), key=repr) for name in names}


@contextmanager
def _opened(path: Place) -> Iterator[Connection]:
    if isinstance(path, Path):
        with closing(sqlite3.connect(path)) as file, file:
            yield file
    else:
        database = PostgresConnection(path, NoFence())
        with closing(database.raw):
            yield database


def _find_id(path: Place, feed: Feed) -> object:
    return read(path, "SELECT id FROM feeds WHERE source = ? AND resource = ?", feed.source, feed.resource)[0][0]


def stand(path: Place, sink: str, position: int, *, origin: int = 0, feed: Feed = FEED) -> None:
    """Let a sink have settled a feed up to a position."""
    write(
        path,
        "INSERT INTO positions (sink, feed, sequence, origin) VALUES (?, ?, ?, ?) ON CONFLICT (sink, feed)"
        " DO UPDATE SET sequence = excluded.sequence, origin = excluded.origin",
        *(sink, _find_id(path, feed), position, origin),
    )


def block(path: Place, sink: str, key: str, sequence: int, *, held: bool = False, feed: Feed = FEED) -> None:
    """Let a key of a sink be blocked, or on hold."""
    write(
        path,
        "INSERT INTO blocked (sink, feed, key, sequence, attempts, due, error, held)"
        " VALUES (?, ?, ?, ?, 3, ?, 'HTTP 503', ?)",
        *(sink, _find_id(path, feed), key, sequence, to_micros(NOON), held),
    )


def kill(path: Place, sink: str, key: str, sequence: int, *, feed: Feed = FEED, error: str = "HTTP 422") -> None:
    """Let an event be a dead letter of a sink."""
    write(
        path,
        "INSERT INTO dead_letters (sink, feed, sequence, key, attempts, died_at, error) VALUES (?, ?, ?, ?, 1, ?, ?)",
        *(sink, _find_id(path, feed), sequence, key, to_micros(NOON), error),
    )


def note_attempts(path: Path, sequence: int, key: str = "a", sink: str = "erp") -> None:
    """Note that an event was delivered by its second attempt, after one that the receiver answered with an error."""
    at = to_micros(NOON)
    write(
        path,
        "INSERT INTO attempts (sink, feed, key, sequence, number, began_at, took, verdict, error, status, answer,"
        " next_at, is_replay) VALUES (?, 1, ?, ?, 1, ?, 34000, 'failed', 'HTTP 503', 503, 'busy', ?, 0),"
        " (?, 1, ?, ?, 2, ?, 1200000, 'delivered', '', 200, 'thanks', NULL, 0)",
        *(sink, key, sequence, at, at + 5_000_000),
        *(sink, key, sequence, at + 5_000_000),
    )


def waiting(path: Place, sink: str) -> list[tuple[str, int]]:
    """Return the replays of a sink that wait, each as a feed and a sequence, in the order in which they were asked."""
    found = read(
        path,
        "SELECT source || '/' || resource, replays.sequence FROM replays JOIN feeds ON feeds.id = replays.feed"
        " WHERE sink = ? ORDER BY replays.id",
        sink,
    )
    return [(str(feed), int(str(sequence))) for feed, sequence in found]
