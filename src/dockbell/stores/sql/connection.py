"""What the statements share: connections, of sqlite3 or an adapter of another database, transactions, stored times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from dockbell.core.moment import from_micros

_VALUES_AT_ONCE: Final = 500
_T = TypeVar("_T")


class Cursor(Protocol):
    """The rows of a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it wrote; -1 where the database does not tell."""

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Takes statements with ``?`` and ``:name`` for values."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""

    def execute(self, statement: str, values: Any = ..., /) -> Cursor:
        """Execute a statement."""

    def executemany(self, statement: str, values: Iterable[Any], /) -> Cursor:
        """Execute a statement once for each set of values."""


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


FEED_ID: Final = "(SELECT id FROM feeds WHERE source = ? AND resource = ?)"


def portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Return values in parts that one statement can take."""
    return (values[start : start + _VALUES_AT_ONCE] for start in range(0, len(values), _VALUES_AT_ONCE))


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def upsert(table: str, key: Sequence[str], *others: str) -> str:
    """Return the statement that writes a row, over the one that has its key."""
    columns = (*key, *others)
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(columns)})"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    )


def moment(stored: int | None) -> datetime | None:
    return None if stored is None else from_micros(stored)
