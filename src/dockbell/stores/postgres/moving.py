"""Moves a store from SQLite's file into a database of PostgreSQL: its epoch, ids, sequences and positions stay.

In the database that is one transaction, so it holds the whole store or nothing. Until that has ended nothing else
writes to the file; then the file is marked, and refused from then on (:mod:`dockbell.stores.sqlite.moving`). Where a
crash comes in between, the next try finds in the database what the file holds, and only marks it.

Before the commit each table is compared by the number of its rows and a checksum, the sum of a hash of each row: here
of what is read from the file, there, by the server, of what it has stored. So nothing is sent back.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from anyio import from_thread, to_thread
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dockbell.errors import ConfigError, StoreError, StoreIncompatible, StoreInUse
from dockbell.stores.postgres.connection import adapt_value, connect
from dockbell.stores.postgres.epoch import PLACE
from dockbell.stores.postgres.migrations import MIGRATIONS
from dockbell.stores.postgres.partitions import DAY, Partition, make
from dockbell.stores.postgres.schema import find_version, has_tables, migrate, take_turn
from dockbell.stores.postgres.store_errors import name_store, translating
from dockbell.stores.sql.connection import transaction
from dockbell.stores.sqlite import store_errors
from dockbell.stores.sqlite.files import holding
from dockbell.stores.sqlite.moving import mark_moved
from dockbell.stores.sqlite.probe import find_holder
from dockbell.stores.sqlite.schema import list_tables

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, and how many rows of how many it has done; from another thread."""
Row: TypeAlias = tuple[Any, ...]

_ROWS_UNTIL_TOLD: Final = 1000
_DAYS_MOST: Final = 31
_CANONICAL: Final = {
    "bigint": "CAST({0} AS text)",
    "boolean": "CAST(CAST({0} AS int) AS text)",
    "text": "length({0}) || ':' || {0}",
    "bytea": "encode(sha256({0}), 'hex')",
}
"""How the server writes a value for the hash of its row; :func:`_write` writes the same."""


class Moved(msgspec.Struct, frozen=True):
    """What came of a move."""

    place: str  # where the store is now: host and database
    feeds: int
    records: int
    events: int
    sinks: int
    rows: int  # of all tables
    was_there: bool  # it had been moved before, and the file was only marked
    copy: Path | None  # the file as it was before it was brought up to date; None where it was


class Checksum(msgspec.Struct, frozen=True):
    """What two tables have in common that hold the same rows, in whatever order."""

    rows: int
    total: int


class _Table(msgspec.Struct, frozen=True):
    name: str
    kinds: Mapping[str, str]  # the type in PostgreSQL of each column that the file has


async def move(path: Path, url: str, *, at: int, progress: Progress | None = None) -> Moved:
    """Move a store from a file, at a time in microseconds, into an empty database.

    Raises:
        ConfigError: The URL names no database of PostgreSQL.
        StoreInUse: A process works on the file.
        StoreIncompatible: The file is no store, was moved already, or is a newer dockbell's; or the database is not
            empty.
        StoreError: There is no file, the database cannot be used, or holds something else than was sent.
    """
    _check_url(url)
    return await to_thread.run_sync(partial(_move, path, url, at, _watch_cancellation(progress)))


def _check_url(url: str) -> None:
    try:
        is_named = url.startswith(("postgresql://", "postgres://")) and conninfo_to_dict(url).get("dbname")
    except psycopg.ProgrammingError:
        is_named = None
    if not is_named:
        raise ConfigError('URL: must name a database of PostgreSQL, "postgresql://user@host/database"')


def _watch_cancellation(progress: Progress | None) -> Progress:
    def tell(words: str, done: int, total: int) -> None:
        from_thread.check_cancelled()
        if progress is not None:
            progress(words, done, total)

    return tell


def _move(path: Path, url: str, at: int, progress: Progress) -> Moved:
    name = name_store(url)
    if not path.is_file():
        raise StoreError(f"store {path}: not found, so there is nothing to move; check [store] url")
    if holder := find_holder(path):
        raise StoreInUse(f"store {path}: held by {holder}; stop it, then move the store")
    with translating(name), closing(connect(url)) as target:
        _check_target(target, name)  # before the file is brought up to date, which may take long
        with (
            holding(path, epoch=secrets.token_hex(8), now=at) as files,
            store_errors.translating(path, store_errors.blame),
            transaction(files.writer),
        ):
            was_there, sums = _fill(files.writer, target, name, at, progress)
            mark_moved(files.writer, name, at)
            (sinks,) = files.writer.execute("SELECT count(DISTINCT sink) FROM positions").fetchone()
            return Moved(
                name,
                feeds=sums["feeds"].rows,
                records=sums["records"].rows,
                events=sums["events"].rows,
                sinks=sinks,
                rows=sum(each.rows for each in sums.values()),
                was_there=was_there,
                copy=files.upgrade.copy,
            )


# Where it goes -------------------------------------------------------------------------------------------------------


def _check_target(target: psycopg.Connection[Any], name: str) -> str:
    """Return the epoch of the store that a database holds; empty where it is empty.

    Raises:
        StoreIncompatible: It holds something else.
    """
    ((encoding,),) = target.execute("SHOW server_encoding").fetchall()
    if encoding != "UTF8":
        raise StoreIncompatible(f"store {name}: its encoding is {encoding}; create a database with ENCODING 'UTF8'")
    if not has_tables(target):
        return ""
    try:
        version = find_version(target, name)
    except StoreIncompatible:
        version = 0
    if version != len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {name}: the database is not empty; create one for the store alone, and use that"
        )
    ((epoch,),) = target.execute("SELECT epoch FROM life").fetchall()
    return str(epoch)


def _fill(
    source: sqlite3.Connection, target: psycopg.Connection[Any], name: str, at: int, progress: Progress
) -> tuple[bool, Mapping[str, Checksum]]:
    """Copy all tables in one transaction; return whether they were there already, and their checksums."""
    (epoch,) = source.execute("SELECT epoch FROM life").fetchone()
    with target.transaction():
        target.execute("SET LOCAL statement_timeout = 0")
        take_turn(target)
        known = _check_target(target, name)
        if known not in ("", epoch):
            raise StoreIncompatible(f"store {name}: contains another store; create an empty database, and use that")
        if not known:
            migrate(target, name, epoch=epoch, now=at)
            target.execute("DELETE FROM life")  # it comes from the file
            _make_partitions(source, target)
        tables = [_find_table(source, target, table) for table in list_tables()]
        send = None if known else partial(_send, target)
        sums = _read_all(source, tables, send, progress)
        differing = _compare(target, tables, sums, progress)
        if known and differing:
            raise StoreIncompatible(
                f"store {name}: contains this store, but one of the two has changed since: {differing}; if dockbell has"
                " worked on the database, put its URL in [store] url; otherwise create an empty database, and use that"
            )
        if differing:
            raise StoreError(f"store {name}: does not contain what was copied, so nothing was moved: {differing}")
        if not known:
            for table in tables:
                _set_identities(source, target, table)
                target.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table.name)))
            target.execute("UPDATE schema_version SET place = %s", target.execute(PLACE).fetchone())
    return bool(known), sums


def _make_partitions(source: sqlite3.Connection, target: psycopg.Connection[Any]) -> None:
    """Make a partition for each of the last days of which there are events."""
    days = source.execute(f"SELECT DISTINCT recorded_at / {DAY} FROM events ORDER BY 1 DESC LIMIT {_DAYS_MOST}")
    for (day,) in days:
        for statement in make(Partition(day * DAY, (day + 1) * DAY)):
            target.execute(sql.SQL(statement))


def _find_table(source: sqlite3.Connection, target: psycopg.Connection[Any], name: str) -> _Table:
    kinds = dict(
        target.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s :: regclass", [name]
        ).fetchall()
    )
    columns = source.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
    return _Table(name, {column: kinds[column] for (column,) in columns})


def _set_identities(source: sqlite3.Connection, target: psycopg.Connection[Any], table: _Table) -> None:
    """Let the numbers that a table gives go on after all that it has ever given."""
    for (column,) in target.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s :: regclass AND attidentity <> ''", [table.name]
    ).fetchall():
        # sqlite_sequence knows those that are gone, of the tables in which no number is used twice.
        (last,) = source.execute(
            f'SELECT max(number) FROM (SELECT max("{column}") AS number FROM "{table.name}"'
            " UNION ALL SELECT seq FROM sqlite_sequence WHERE name = ?)",
            (table.name,),
        ).fetchone()
        if last:
            target.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", [table.name, column, last])


# The rows ------------------------------------------------------------------------------------------------------------


def _read_all(
    source: sqlite3.Connection,
    tables: Sequence[_Table],
    send: Callable[[_Table, Iterator[Row]], None] | None,
    progress: Progress,
) -> Mapping[str, Checksum]:
    """Read all rows once, hand them on, and return the checksum of each table."""
    total = sum(source.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0] for table in tables)
    sums: dict[str, Checksum] = {}
    done = 0

    def summed(table: _Table) -> Iterator[Row]:
        nonlocal done
        words = "copying" if send else "reading"
        rows = hashes = 0
        for row in _read(source, table):
            if done % _ROWS_UNTIL_TOLD == 0:
                progress(f"{words} {table.name}", done, total)
            yield row
            hashes += _hash(row)
            rows += 1
            done += 1
        sums[table.name] = Checksum(rows, hashes)

    for table in tables:
        if send is None:
            for _ in summed(table):
                pass
        else:
            send(table, summed(table))
    return sums


def _read(source: sqlite3.Connection, table: _Table) -> Iterator[Row]:
    """Return the rows as PostgreSQL takes them."""
    names = ", ".join(f'"{column}"' for column in table.kinds)
    flags = [index for index, kind in enumerate(table.kinds.values()) if kind == "boolean"]
    adapted = [index for index, kind in enumerate(table.kinds.values()) if kind in ("text", "bytea")]
    for found in source.execute(f'SELECT {names} FROM "{table.name}"'):
        row = list(found)
        for index in flags:
            row[index] = bool(row[index])  # none of them may be missing
        for index in adapted:
            row[index] = adapt_value(row[index])
        yield tuple(row)


def _send(target: psycopg.Connection[Any], table: _Table, rows: Iterator[Row]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, table.kinds))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(sql.Identifier(table.name), names)
    with target.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(list(table.kinds.values()))
        for row in rows:
            copy.write_row(row)


def _compare(
    target: psycopg.Connection[Any], tables: Sequence[_Table], sums: Mapping[str, Checksum], progress: Progress
) -> str:
    """Return in which tables the database differs from what was read; empty where it does not."""
    done, total = 0, sum(each.rows for each in sums.values())
    differing: list[str] = []
    for table in tables:
        progress(f"comparing {table.name}", done, total)
        read, stored = sums[table.name], _sum_stored(target, table)
        if read.rows != stored.rows:
            differing.append(f"{table.name} ({read.rows:,} rows in the file, {stored.rows:,} in the database)")
        elif read != stored:
            differing.append(f"{table.name} (different values in {read.rows:,} rows)")
        done += read.rows
    return ", ".join(differing)


def _sum_stored(target: psycopg.Connection[Any], table: _Table) -> Checksum:
    values = [
        sql.SQL("coalesce({}, '-')").format(sql.SQL(_CANONICAL[kind]).format(sql.Identifier(column)))
        for column, kind in table.kinds.items()
    ]
    query = sql.SQL(
        "SELECT count(*), coalesce(sum(CAST(CAST("
        "'x' || encode(substr(sha256(convert_to(concat_ws('|', {}), 'UTF8')), 1, 8), 'hex')"
        " AS bit(64)) AS bigint)), 0) FROM {}"
    ).format(sql.SQL(", ").join(values), sql.Identifier(table.name))
    ((rows, total),) = target.execute(query).fetchall()
    return Checksum(rows, total)


def _hash(row: Row) -> int:
    text = "|".join(map(_write, row))
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big", signed=True)


def _write(value: object) -> str:
    match value:
        case None:
            return "-"
        case bytes():
            return sha256(value).hexdigest()
        case str():
            return f"{len(value)}:{value}"
        case _:
            return str(int(value))  # type: ignore[call-overload]
