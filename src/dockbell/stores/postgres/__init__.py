"""The store in a database of PostgreSQL.

- ``database``: opens it. ``store``: the port, held by one process; ``engine``: what its handles need; ``holder``: the
  row of that process.
- ``fleet``, ``leases``: the processes that share it. ``configurations``: what all of them follow.
- ``schema.sql``: the tables; ``migrations``: the way to them from older ones; ``schema``: applies them.
- ``read_store``: for commands and the page, beside that process. ``epoch``: the mark of one life of the store.
- ``connection``: takes the statements of ``sql``. ``store_errors``: when they cannot be executed.
"""

from __future__ import annotations

from dockbell.stores.postgres.read_store import PostgresCommandStore, PostgresReadStore
from dockbell.stores.postgres.store import PostgresStore

__all__ = ["PostgresCommandStore", "PostgresReadStore", "PostgresStore"]
