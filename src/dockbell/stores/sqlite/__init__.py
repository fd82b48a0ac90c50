"""The store in one SQLite file: WAL, one writer.

- ``database``: opens it. ``store``: the port, held by one process; ``engine``: what its handles need.
  ``read_store``, ``command_store``: for commands and the page, beside that process; ``session``: what both need.
- ``schema.sql``: the tables; ``migrations``: the way to them from older ones. ``schema``, ``upgrading``: apply them.
- ``files``, ``connection``, ``epoch_file``, ``disk_reserve``: the files. ``copying``, ``backup``: copies of them.
  ``wiping``: removes what was deleted. ``moving``: the mark of a store that was moved to another database.
- ``probe``: the holder of the files. ``store_errors``: when they cannot be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dockbell.stores.sqlite.read_store import SqliteReadStore

if TYPE_CHECKING:
    from dockbell.stores.sqlite.store import SqliteStore

__all__ = ["SqliteReadStore", "SqliteStore"]


def __getattr__(name: str) -> Any:
    """Import the store only for who works on it: commands that read one start without it."""
    if name == "SqliteStore":
        from dockbell.stores.sqlite.store import SqliteStore  # noqa: PLC0415

        return SqliteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
