"""The one process that works on a store in PostgreSQL: a row of its own, which expires where it is not renewed.

A process is alive as long as its row is there, and only the database's clock counts. It renews the row each second.
Another process that finds the row expired deletes it: the row's lock decides, for each transaction that writes locks
the row first. So what the first process has begun to commit is committed before, and nothing after.

The row is renewed in a thread with a connection of its own: whatever keeps the event loop or the writer busy does not
end it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from contextlib import suppress
from typing import Any, Final

import psycopg

from dockbell.errors import LeaseLost, StoreInUse
from dockbell.stores.postgres.connection import connect

TTL_SECONDS: Final = 6
_BEAT_SECONDS: Final = 1.0
_STATEMENT_MILLISECONDS: Final = 3000
"""A server that has gone without a word keeps a beat no longer."""


class Holder:
    """This process as the holder of the store."""

    def __init__(self, url: str, name: str) -> None:
        self.id = secrets.token_hex(8)
        self.name = f"process {os.getpid()} on {socket.gethostname()}"
        self._url = url
        self._store = name
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="dockbell-holder", daemon=True)

    def register(self, connection: psycopg.Connection[Any]) -> None:
        """Take the store.

        Raises:
            StoreInUse: Another process holds it.
        """
        with connection.transaction():
            # Two that come at once take turns: the lock ends with the transaction.
            connection.execute("LOCK TABLE holders IN SHARE ROW EXCLUSIVE MODE")
            connection.execute("DELETE FROM holders WHERE expires_at < clock_timestamp()")
            if other := connection.execute("SELECT name FROM holders ORDER BY expires_at DESC LIMIT 1").fetchone():
                raise StoreInUse(
                    f"store {self._store}: held by {other[0]}; stop it, or give this one another [store] url;"
                    f" after a crash it is free within {TTL_SECONDS} seconds"
                )
            connection.execute(
                "INSERT INTO holders (id, name, expires_at) VALUES (%s, %s, clock_timestamp() + %s * interval '1 s')",
                [self.id, self.name, TTL_SECONDS],
            )
        self._thread.start()

    def fence(self, connection: psycopg.Connection[Any]) -> str:
        """Return the number of a transaction that writes; refuse it once another process has taken the store.

        Raises:
            LeaseLost: The row is gone.
        """
        # It keeps the row from being deleted, and not from being renewed, until the transaction ends.
        found = connection.execute(
            "SELECT pg_current_xact_id() :: text FROM holders WHERE id = %s FOR KEY SHARE", [self.id]
        ).fetchone()
        if found is None:
            raise LeaseLost(
                f"store {self._store}: another process has taken it over, and nothing was stored;"
                " let one dockbell alone work on the store, and start it again"
            )
        return str(found[0])

    def leave(self) -> None:
        """Give the store up, where the database can be reached."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(TTL_SECONDS)
        with suppress(psycopg.Error), connect(self._url) as connection:
            connection.execute("DELETE FROM holders WHERE id = %s", [self.id])

    def _beat(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while not self._ending.wait(_BEAT_SECONDS):
            try:
                if connection is None or connection.closed:
                    connection = connect(self._url)
                with connection.transaction():
                    connection.execute(f"SET LOCAL statement_timeout = {_STATEMENT_MILLISECONDS}")
                    connection.execute(
                        "UPDATE holders SET expires_at = clock_timestamp() + %s * interval '1 s' WHERE id = %s",
                        [TTL_SECONDS, self.id],
                    )
            except psycopg.Error:
                continue  # the writer meets the same and reports it
        if connection is not None:
            connection.close()


def find_holder(connection: psycopg.Connection[Any]) -> str:
    """Return who works on a store, ``process 4711 on host``; empty when none does."""
    row = connection.execute("SELECT name FROM holders WHERE expires_at >= clock_timestamp() LIMIT 1").fetchone()
    return str(row[0]) if row else ""
