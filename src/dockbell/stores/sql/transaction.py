"""What all statements share: transactions, and times as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeVar

from dockbell.core.moment import from_micros, to_micros
from dockbell.stores.sql.connection import Connection

_VALUES_AT_ONCE: Final = 500
_T = TypeVar("_T")


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Commit what is done inside, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has undone it already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def reading(connection: Connection) -> Iterator[None]:
    """Show what is read inside as it was at one moment, whatever is committed meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Return values in parts that one statement can take."""
    return (values[start : start + _VALUES_AT_ONCE] for start in range(0, len(values), _VALUES_AT_ONCE))


def marks(values: Sequence[object]) -> str:
    """Return the placeholders of a list of values."""
    return ", ".join("?" * len(values))


def upsert(table: str, key: Sequence[str], *others: str) -> str:
    """Return the statement that writes a row, over the one that has its key."""
    columns = (*key, *others)
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(columns)})"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    )


def micros(moment: datetime | None) -> int | None:
    """Return a time as stored."""
    return None if moment is None else to_micros(moment)


def moment(stored: int | None) -> datetime | None:
    """Return a stored time."""
    return None if stored is None else from_micros(stored)
