"""A process that works on a store in PostgreSQL: a row of its own, which expires where it is not renewed.

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
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg import sql

from dockbell._version import __version__
from dockbell.errors import LeaseLost, StoreInUse, StoreUnavailable
from dockbell.host import system
from dockbell.ports import Upgrade
from dockbell.stores.postgres.connection import connect
from dockbell.stores.postgres.epoch import TIMELINE
from dockbell.stores.postgres.migrations import MIGRATIONS
from dockbell.stores.postgres.schema import find_version, finish, take_turn
from dockbell.stores.postgres.store_errors import translating
from dockbell.stores.sql.lease import refuse_feed

TTL_SECONDS: Final = 6
_BEAT_SECONDS: Final = 1.0
_TRUST: Final = timedelta(seconds=TTL_SECONDS - 1)
_ASKED_MILLISECONDS: Final = 5000
"""So long a transaction is waited for of whose commit the answer was lost."""
_IDLE_MILLISECONDS: Final = 4000
"""So long a transaction may rest: that of a stopped process would keep the row, and with it the sources, for ever."""
_FENCE: Final = f"SELECT begin_writing(%s, %s, %s, {TIMELINE} = %s, %s)"
"""Refused where the row is gone, or another server has taken over (schema.sql)."""
_ROW_GONE: Final = "LE001"
_OTHER_SERVER: Final = "LE002"
_OTHER_HOLDER: Final = "LE003"
_MOVED_ON: Final = "LE005"
"""What the functions of schema.sql refuse a statement with."""
_LIMITED: Final = "SELECT set_config('statement_timeout', %s, true)"
_ASKED: Final = "SELECT has_committed(%s, %s, %s)"


class Holder:
    """This process among those that work on a store.

    Args:
        url: Of the database.
        store: What the store is called in messages.
        alone: No other process may work on the store meanwhile.

    Attributes:
        application: What its connections are called at the server that lock its row.
        slot: A small number that no other process has.
        is_lost: Another process has found the row expired, and has deleted it: this one has nothing any more.
        lives_since: Since when the row was renewed without a failure, by the steady clock.
    """

    def __init__(self, url: str, store: str, *, alone: bool) -> None:
        self.id = secrets.token_hex(8)
        self.application = f"dockbell {self.id}"
        self.name = name_process()
        self.slot = 0
        self._timeline = ""
        self.is_lost = False
        self.lives_since = system.elapsed()
        self._trusted_until = system.elapsed()
        self._alone = alone
        self._url = url
        self._store = store
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="dockbell-holder", daemon=True)

    @property
    def is_trusted(self) -> bool:
        """Whether no other process can have deleted the row yet, so that what it has is still its own."""
        return system.elapsed() < self._trusted_until

    @property
    def has_lived(self) -> bool:
        """Whether it was connected for so long that every other process that lives has renewed its row meanwhile."""
        return system.elapsed() - self.lives_since > timedelta(seconds=TTL_SECONDS)

    def register(self, connection: psycopg.Connection[Any]) -> None:
        """Begin to work on the store.

        Raises:
            StoreInUse: Another process works on it, and one of the two must be alone.
            StoreIncompatible: This dockbell is too old for it.
        """
        began_at = system.elapsed()
        with connection.transaction():
            take_turn(connection)
            find_version(connection, self._store)  # an upgrade may have been finished since it was looked at
            connection.execute("DELETE FROM holders WHERE expires_at < clock_timestamp()")
            others = connection.execute("SELECT name, slot, alone FROM holders ORDER BY expires_at DESC").fetchall()
            rivals = [name for name, _, alone in others if alone or self._alone]
            if rivals:
                raise StoreInUse(
                    f"store {self._store}: held by {rivals[0]}; stop it, or give this one another [store] url;"
                    f" after a crash it is free within {TTL_SECONDS} seconds"
                )
            taken = {slot for _, slot, _ in others}
            self.slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            connection.execute(
                "INSERT INTO holders (id, name, version, migrations, slot, alone, expires_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp() + %s * interval '1 s')",
                [self.id, self.name, __version__, len(MIGRATIONS), self.slot, self._alone, TTL_SECONDS],
            )
            ((self._timeline,),) = connection.execute(sql.SQL("SELECT " + TIMELINE)).fetchall()
        self.lives_since, self._trusted_until = began_at, began_at + _TRUST
        self._thread.start()

    def fence(self) -> HolderFence:
        """Return the fence of one connection that writes."""
        return HolderFence(self)

    def mark(self, line: str, number: int) -> tuple[str, Sequence[object]]:
        """Return the statement that marks a transaction that writes.

        The server refuses it once another process or server has taken over. A standby that takes over begins a timeline
        of its own. It may lack what the server before had committed last: numbers of events would be used twice under
        one epoch, so that each process must begin anew.
        """
        return _FENCE, (self.id, line, number, self._timeline, str(_IDLE_MILLISECONDS))

    def read_refusal(self, error: psycopg.Error) -> LeaseLost | StoreUnavailable | None:
        """Return what this process has lost where an error says that it may not write; None where it says else."""
        if error.sqlstate == _OTHER_HOLDER:
            return refuse_feed(error.diag.message_primary or "")
        if error.sqlstate == _MOVED_ON:
            return StoreUnavailable(
                f"store {self._store}: a commit to feed {error.diag.message_primary} that seemed lost had succeeded;"
                " nothing was stored again"
            )
        if error.sqlstate == _ROW_GONE:
            self.is_lost = True
            return LeaseLost(
                f"store {self._store}: another process took over the work of this one, which did not renew its row"
                f" for {TTL_SECONDS} seconds; nothing was stored"
            )
        if error.sqlstate == _OTHER_SERVER:
            self.is_lost = True
            return LeaseLost(
                f"store {self._store}: another server took over, which may lack the last commits; nothing was stored"
            )
        return None

    def finish_upgrade(self) -> Upgrade:
        """Finish an upgrade of the store, see :func:`dockbell.stores.postgres.schema.finish`."""
        with translating(self._store), closing(connect(self._url, self.application)) as connection:
            return finish(connection, self._store)

    def leave(self) -> None:
        """End the work on the store, where the database can be reached."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(TTL_SECONDS)
        with suppress(psycopg.Error), connect(self._url) as connection:
            connection.execute("DELETE FROM holders WHERE id = %s", [self.id])

    def _beat(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while not self.is_lost and not self._ending.wait(_BEAT_SECONDS):
            began_at = system.elapsed()
            try:
                if connection is None or connection.closed:
                    connection = connect(self._url)
                self.is_lost = not self._renew(connection)
            except psycopg.Error:
                self.lives_since = system.elapsed()
                continue  # the writer meets the same and reports it
            self._trusted_until = began_at + _TRUST
        if self.is_lost:
            self._trusted_until = system.elapsed()
        if connection is not None:
            connection.close()

    def _renew(self, connection: psycopg.Connection[Any]) -> bool:
        # One statement, a transaction by itself: a process that is stopped meanwhile leaves no lock.
        renewed = connection.execute(
            "UPDATE holders SET expires_at = clock_timestamp() + %s * interval '1 s' WHERE id = %s",
            [TTL_SECONDS, self.id],
        )
        return renewed.rowcount > 0


def name_process() -> str:
    """Return what this process is called, for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class HolderFence:
    """Lets one connection of a process write as long as the process lives.

    Each transaction leaves its number in a row of the connection. So the row tells whether it was committed, also after
    a crash of the server, which may use the number that the server itself gave the transaction again.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._line = secrets.token_hex(8)
        self._number = 0

    def begin(self) -> tuple[str, Sequence[object]]:
        """Return what marks a new transaction; see :meth:`Holder.mark`."""
        self._number += 2
        return self._holder.mark(self._line, self._number)

    def read_refusal(self, error: psycopg.Error) -> Exception | None:
        return self._holder.read_refusal(error)

    def has_committed(self, connection: psycopg.Connection[Any]) -> bool | None:
        """Return whether the last transaction was committed; see ``schema.sql``."""
        with connection.transaction():
            connection.execute(_LIMITED, [str(_ASKED_MILLISECONDS)])
            ((answer,),) = connection.execute(_ASKED, [self._holder.id, self._line, self._number]).fetchall()
        return None if answer is None else bool(answer)


def find_holder(connection: psycopg.Connection[Any]) -> str:
    """Return who works on a store, ``process 4711 on host``, several with commas; empty when none does."""
    rows = connection.execute("SELECT name FROM holders WHERE expires_at >= clock_timestamp() ORDER BY slot").fetchall()
    return ", ".join(str(name) for (name,) in rows)
