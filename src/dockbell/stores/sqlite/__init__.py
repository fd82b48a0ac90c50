"""The store in one SQLite file: WAL, one writer.

- ``store``: the port, held by one process. ``view``, ``desk``: a look, and an operator's word, from beside.
- ``snapshots``, ``feeds``, ``absence``, ``details``, ``outbox``: statements of detection. ``delivery``, ``backfill``,
  ``replays``: of delivery. ``inspection``, ``browsing``: that only look. ``pruning``, ``purging``, ``cleaning``: that
  take away what is too old, what an operator erases, what a feed must not store.
- ``schema``: the tables. ``upgrading``: from older ones. ``copying``, ``backup``: copies. ``files``, ``life``,
  ``reserve``: what stands beside the file. ``blaming``, ``outage``: when it cannot be written.
"""

from __future__ import annotations

from dockbell.stores.sqlite.store import SqliteStore
from dockbell.stores.sqlite.view import SqliteView

__all__ = ["SqliteStore", "SqliteView"]
