"""The store in one SQLite file: WAL, one writer.

- ``store``: the port, held by one process. ``read_store``, ``command_store``: for commands and the page, from beside.
- ``snapshots``, ``feeds``, ``absence``, ``details``, ``outbox``: statements of detection. ``delivery``, ``backfill``,
  ``replays``: of delivery. ``inspection``, ``browsing``: read-only ones. ``pruning``, ``purging``, ``cleaning``: remove
  what is too old, what an operator erases, what a feed must not store.
- ``schema``: the tables. ``upgrading``: from older ones. ``copying``, ``backup``: copies. ``files``, ``epoch_file``,
  ``disk_reserve``: files beside the database. ``store_errors``, ``outage``: when it cannot be written.
"""

from __future__ import annotations

from dockbell.stores.sqlite.read_store import SqliteReadStore
from dockbell.stores.sqlite.store import SqliteStore

__all__ = ["SqliteReadStore", "SqliteStore"]
