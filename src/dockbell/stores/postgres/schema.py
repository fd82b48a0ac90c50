"""Makes the tables of a new store, and brings those of an older one up to date, in two parts.

:func:`migrate` adds what this dockbell needs, beside processes of older ones. :func:`finish` removes what only those
need, once none of them works on the store.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from dockbell.errors import StoreError, StoreIncompatible, StoreMissing, StoreUnavailable
from dockbell.ports import Upgrade
from dockbell.stores.postgres.migrations import MIGRATIONS

TURN: Final = 0x646F636B
"""Of the lock that keeps others from migrating meanwhile (the letters ``dock``); it ends with its transaction."""
_KNOWN: Final = "SELECT to_regclass('schema_version') IS NOT NULL AND to_regclass('life') IS NOT NULL"
LIMIT_LOCKS: Final = "SET LOCAL lock_timeout = '500ms'"
"""A session that waits for the lock of a table holds up all processes, whose statements queue behind it."""
_TRIES: Final = 10
_PAUSE_SECONDS: Final = 1.0


def read_schema() -> str:
    return Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


def migrate(connection: psycopg.Connection[Any], name: str, *, epoch: str, now: int) -> int:
    """Add what a store lacks, wholly or not at all; a database without tables becomes one, under ``epoch``.

    Processes of older versions go on to work meanwhile, and afterwards. Returns the version that the store had.

    Raises:
        StoreIncompatible: The database is another program's, or this dockbell is too old for it.
        StoreUnavailable: Another session does not let go of the tables.
    """
    for left in reversed(range(_TRIES)):
        try:
            return _migrate(connection, name, epoch, now)
        except psycopg.errors.LockNotAvailable:
            if left:
                time.sleep(_PAUSE_SECONDS)
    raise StoreUnavailable(
        f"store {name}: cannot be upgraded while another session uses its tables, such as a backup; restart"
        " this dockbell when that session has ended"
    )


def _migrate(connection: psycopg.Connection[Any], name: str, epoch: str, now: int) -> int:
    with connection.transaction():
        take_turn(connection)
        version = find_version(connection, name)
        if version == 0:
            connection.execute(sql.SQL(read_schema()))
            connection.execute("INSERT INTO life (epoch, began_at) VALUES (%s, %s)", [epoch, now])
            connection.execute(
                "INSERT INTO schema_version (version, oldest) VALUES (%s, %s)",
                [len(MIGRATIONS), max(_list_posts(), default=1)],
            )
        elif version < len(MIGRATIONS):
            connection.execute(LIMIT_LOCKS)
            connection.execute(sql.SQL("".join(migration.pre for migration in MIGRATIONS[version:])))
            connection.execute("UPDATE schema_version SET version = %s", [len(MIGRATIONS)])
        return version


def finish(connection: psycopg.Connection[Any], name: str) -> Upgrade:
    """Remove what only older processes need, as far as none of them works on the store; wholly or not at all.

    Raises:
        StoreError: Another session does not let go of the tables.
    """
    try:
        return _finish(connection)
    except psycopg.errors.LockNotAvailable:
        raise StoreError(
            f"store {name}: its upgrade cannot be finished while another session uses its tables, such as a backup"
        ) from None


def _finish(connection: psycopg.Connection[Any]) -> Upgrade:
    with connection.transaction():
        take_turn(connection)  # no process registers meanwhile
        connection.execute(LIMIT_LOCKS)
        ((before,),) = connection.execute("SELECT oldest FROM schema_version").fetchall()
        holders = connection.execute("SELECT name, version, migrations FROM holders ORDER BY slot").fetchall()
        oldest = before
        for number in [number for number in _list_posts() if number > before]:
            if older := tuple(f"{holder} ({version})" for holder, version, known in holders if known < number):
                return Upgrade(before, oldest, older)
            connection.execute(sql.SQL(MIGRATIONS[number - 1].post))
            connection.execute("UPDATE schema_version SET oldest = %s", [number])
            oldest = number
    return Upgrade(before, oldest)


def _list_posts() -> list[int]:
    """Return the versions that older processes cannot work on once they are complete."""
    return [number for number, migration in enumerate(MIGRATIONS, 1) if migration.post]


def take_turn(connection: psycopg.Connection[Any]) -> None:
    """Keep others from making or migrating the store, and from registering, until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [TURN])


def find_version(connection: psycopg.Connection[Any], name: str) -> int:
    """Return a store's version, 0 where there is none yet; it may be newer than this dockbell.

    Raises:
        StoreIncompatible: The database is another program's, or this dockbell is too old for it.
    """
    ((is_known,),) = connection.execute(_KNOWN).fetchall()
    if not is_known:
        if has_tables(connection):
            raise StoreIncompatible(f"store {name}: belongs to another program; name another database in [store] url")
        return 0
    ((version, oldest),) = connection.execute("SELECT version, oldest FROM schema_version").fetchall()
    if oldest > len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {name}: has schema version {version}, which needs a dockbell that knows version {oldest},"
            f" this dockbell knows {len(MIGRATIONS)}; upgrade dockbell"
        )
    return int(version)


def has_tables(connection: psycopg.Connection[Any]) -> bool:
    """Return whether there are any tables where those of the store would be made."""
    ((tables,),) = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    return bool(tables)


def check_version(connection: psycopg.Connection[Any], name: str) -> None:
    """Refuse a store that this dockbell cannot look at.

    Raises:
        StoreIncompatible: It is another program's, or this dockbell is too old or too new for it.
        StoreMissing: There is none.
    """
    version = find_version(connection, name)
    if version == 0:
        raise StoreMissing(f'store {name}: not found; "dockbell run" creates it')
    if version < len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {name}: has schema version {version}, this dockbell needs {len(MIGRATIONS)};"
            ' "dockbell run" upgrades it'
        )
