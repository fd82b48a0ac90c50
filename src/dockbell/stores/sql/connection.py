"""What the statements need of a connection: that of sqlite3 has it, another database gets an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class Cursor(Protocol):
    """The rows of a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it wrote."""
        ...

    @property
    def description(self) -> Any:
        """A tuple per column, of which the first is its name."""
        ...

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Takes statements with ``?`` and ``:name`` for values."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        ...

    def execute(self, statement: str, values: Any = ..., /) -> Cursor:
        """Execute a statement."""
        ...

    def executemany(self, statement: str, values: Iterable[Any], /) -> Cursor:
        """Execute a statement once for each set of values."""
        ...
