"""Makes the tables of a new store, and brings those of an older one up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from dockbell.errors import StoreIncompatible, StoreMissing
from dockbell.stores.postgres.migrations import MIGRATIONS

_TURN: Final = 0x646F636B
"""Of the lock that keeps others from migrating meanwhile (the letters ``dock``); it ends with its transaction."""
_KNOWN: Final = "SELECT to_regclass('schema_version') IS NOT NULL AND to_regclass('life') IS NOT NULL"


def read_schema() -> str:
    return Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


def migrate(connection: psycopg.Connection[Any], name: str, *, epoch: str, now: int) -> None:
    """Bring a store up to date, wholly or not at all; a database without tables becomes one, under ``epoch``.

    Raises:
        StoreIncompatible: The database is another program's, or belongs to a newer dockbell.
    """
    with connection.transaction():
        take_turn(connection)
        version = find_version(connection, name)
        if version == len(MIGRATIONS):
            return
        script = read_schema() if version == 0 else "".join(MIGRATIONS[version:])
        connection.execute(sql.SQL(script))
        if version == 0:
            connection.execute("INSERT INTO life (epoch, began_at) VALUES (%s, %s)", [epoch, now])
            connection.execute("INSERT INTO schema_version (version) VALUES (%s)", [len(MIGRATIONS)])
        else:
            connection.execute("UPDATE schema_version SET version = %s", [len(MIGRATIONS)])


def take_turn(connection: psycopg.Connection[Any]) -> None:
    """Keep others from making or migrating the store until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_TURN])


def find_version(connection: psycopg.Connection[Any], name: str) -> int:
    """Return a store's version, 0 where there is none yet.

    Raises:
        StoreIncompatible: The database is another program's, or belongs to a newer dockbell.
    """
    ((is_known,),) = connection.execute(_KNOWN).fetchall()
    if not is_known:
        if has_tables(connection):
            raise StoreIncompatible(f"store {name}: is another program's database; name another one in [store] url")
        return 0
    ((version,),) = connection.execute("SELECT version FROM schema_version").fetchall()
    if version > len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {name}: has schema version {version}, this dockbell knows {len(MIGRATIONS)}; upgrade dockbell"
        )
    return int(version)


def has_tables(connection: psycopg.Connection[Any]) -> bool:
    """Return whether there are any tables where those of the store would be made."""
    ((tables,),) = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    return bool(tables)


def check_version(connection: psycopg.Connection[Any], name: str) -> None:
    """Refuse a store that this dockbell cannot look at.

    Raises:
        StoreIncompatible: It is another program's, or one of another dockbell.
        StoreMissing: There is none.
    """
    version = find_version(connection, name)
    if version == 0:
        raise StoreMissing(f'store {name}: not found; "dockbell run" makes it')
    if version < len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {name}: has schema version {version}, this dockbell works with {len(MIGRATIONS)};"
            ' "dockbell run" brings it up to date'
        )
