"""The tables, as a list of migrations: the store's version is how many of them it has seen.

Times are whole microseconds since 1970, UTC. A migration is never changed once it was released; a new one is added.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from dockbell.errors import StoreIncompatible

APPLICATION_ID: Final = 0x646F636B
"""Marks the file as ours (the letters ``dock``); see https://www.sqlite.org/pragma.html#pragma_application_id."""

MIGRATIONS: Final = (
    """
    -- One row: the mark of this life of the store. A lost or restored store gets another, so that no id is used twice.
    CREATE TABLE life (epoch TEXT NOT NULL, began_at INTEGER NOT NULL) STRICT;

    CREATE TABLE feeds (
        id             INTEGER PRIMARY KEY,
        source         TEXT NOT NULL,
        resource       TEXT NOT NULL,
        key            TEXT,                          -- JSON array of pointers, once learned
        updated_at     TEXT,                          -- pointer
        created_at     TEXT,                          -- pointer
        first_asked_at INTEGER,                       -- S0
        watermark      INTEGER,
        candidate      INTEGER,
        passes         INTEGER NOT NULL DEFAULT 0,    -- complete ones
        sequence       INTEGER NOT NULL DEFAULT 0,    -- of the last event
        held           INTEGER NOT NULL DEFAULT 0,    -- absent records not believed to be deleted
        confirm_at     INTEGER,                       -- a pass is due that confirms suspected absences
        problem        TEXT NOT NULL DEFAULT '',
        UNIQUE (source, resource)
    ) STRICT;

    -- The last complete and the last incomplete run of each kind.
    CREATE TABLE runs (
        feed     INTEGER NOT NULL REFERENCES feeds,
        kind     TEXT NOT NULL,
        complete INTEGER NOT NULL,
        asked_at INTEGER NOT NULL,
        since    INTEGER,
        ended_at INTEGER NOT NULL,
        pages    INTEGER NOT NULL,
        records  INTEGER NOT NULL,
        events   INTEGER NOT NULL,
        problem  TEXT NOT NULL,
        PRIMARY KEY (feed, kind, complete)
    ) STRICT, WITHOUT ROWID;

    -- The narrow part of the snapshots: all that an unchanged record needs. Rows are never deleted.
    CREATE TABLE records (
        id           INTEGER PRIMARY KEY,
        feed         INTEGER NOT NULL REFERENCES feeds,
        key          TEXT NOT NULL,
        raw_hash     BLOB NOT NULL,
        fingerprint  BLOB NOT NULL,
        modified     INTEGER,
        revision     INTEGER NOT NULL,
        suspected_at INTEGER,                         -- a complete pass did not show it, for the first time
        there_at     INTEGER,                         -- S of the last complete pass before that one
        gone_at      INTEGER,                         -- a tombstone since
        UNIQUE (feed, key)
    ) STRICT;
    CREATE INDEX records_gone ON records (feed, gone_at) WHERE gone_at IS NOT NULL;

    CREATE TABLE bodies (record INTEGER PRIMARY KEY REFERENCES records, body BLOB NOT NULL) STRICT;

    -- The outbox: append-only, numbered per feed without gaps.
    CREATE TABLE events (
        entry       INTEGER PRIMARY KEY AUTOINCREMENT, -- its place among the events of all feeds, never used twice
        feed        INTEGER NOT NULL REFERENCES feeds,
        sequence    INTEGER NOT NULL,
        key         TEXT NOT NULL,
        id          TEXT NOT NULL,
        type        TEXT NOT NULL,
        change      TEXT NOT NULL,
        revision    INTEGER NOT NULL,
        recorded_at INTEGER NOT NULL,
        body        BLOB NOT NULL,
        UNIQUE (feed, sequence)
    ) STRICT;
    CREATE INDEX events_key ON events (feed, key, sequence);

    CREATE TABLE positions (
        sink     TEXT NOT NULL,
        feed     INTEGER NOT NULL REFERENCES feeds,
        sequence INTEGER NOT NULL,
        PRIMARY KEY (sink, feed)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE blocked (
        sink     TEXT NOT NULL,
        feed     INTEGER NOT NULL REFERENCES feeds,
        key      TEXT NOT NULL,
        sequence INTEGER NOT NULL,                    -- events of the key are owed from here on
        attempts INTEGER NOT NULL,
        due      INTEGER NOT NULL,
        error    TEXT NOT NULL,
        PRIMARY KEY (sink, feed, key)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE dead_letters (
        sink     TEXT NOT NULL,
        feed     INTEGER NOT NULL REFERENCES feeds,
        sequence INTEGER NOT NULL,
        key      TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        died_at  INTEGER NOT NULL,
        error    TEXT NOT NULL,
        PRIMARY KEY (sink, feed, sequence)
    ) STRICT, WITHOUT ROWID;
    """,
)


def migrate(connection: sqlite3.Connection, path: Path, *, epoch: str, now: int) -> None:
    """Bring a store up to date; a new file becomes one, under ``epoch``.

    Raises:
        StoreIncompatible: The file is something else, or belongs to a newer dockbell.
    """
    check_version(connection, path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number};")
        if number == 1:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("INSERT INTO life VALUES (?, ?)", (epoch, now))
        connection.execute("COMMIT")


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that this dockbell cannot use.

    Raises:
        StoreIncompatible: The file is something else, or belongs to a newer dockbell.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.DatabaseError as error:
        raise StoreIncompatible(f"store {path}: {error}; name another file in [store] url") from error
    if tables and application != APPLICATION_ID:
        raise StoreIncompatible(f"store {path}: is another program's database; name another file in [store] url")
    if version > len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {path}: has schema version {version}, this dockbell knows {len(MIGRATIONS)}; upgrade dockbell"
        )
