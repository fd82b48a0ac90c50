"""Statements about the life of the store: its epoch, and why it began anew."""

from __future__ import annotations

from typing import Final

from dockbell.stores.sql.connection import Connection

STORE_LOST: Final = "store_lost"
STORE_RESTORED: Final = "store_restored"


def begin_anew(connection: Connection, epoch: str, reason: str, now: int) -> None:
    """Give the store a new epoch; each feed's first event will state the gap."""
    connection.execute("UPDATE life SET epoch = ?, began_at = ?, copied_at = NULL", (epoch, now))
    connection.execute("UPDATE feeds SET blind = ?", (reason,))
    connection.execute("UPDATE life SET reason = ?", (reason,))


def end_beginning(connection: Connection) -> None:
    """Note that the store was opened again: feeds that are new from now on have missed nothing.

    One that knows no feed yet was left by a crash right after it began: its first feeds are still to come.
    """
    connection.execute("UPDATE life SET reason = '' WHERE reason <> '' AND EXISTS (SELECT 1 FROM feeds)")
