"""The life of a store: whether the file that is there is the one that was there.

Event ids hold the *epoch*, the random mark of one life. A store that was lost, or that comes back from a backup, must
begin a new life, else it would give ids a second time to other events. Nothing inside a file tells that it is old, so a
second file beside it, ``<store>.life``, knows the epoch and the place of the last event. It is written after each
commit and not synced: what a power loss takes of it only makes the store look newer, which is harmless. A backup that
``dockbell backup`` has made knows by itself that it is one.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import msgspec

from dockbell.host.ownership import open_own
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.life import STORE_LOST, STORE_RESTORED


class EpochMark(msgspec.Struct):
    """What is known of the store beside it."""

    epoch: str
    entry: int


class EpochFile:
    """The file beside the store, open for as long as the store is held."""

    def __init__(self, path: Path) -> None:
        """Open it, making it if there is none."""
        self._file = open_own(Path(f"{path}.life"))

    def read(self) -> EpochMark | None:
        """Return what it says; None where it says nothing that can be read."""
        try:
            return msgspec.json.decode(os.pread(self._file, 1000, 0).strip(b"\0 \n"), type=EpochMark)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def write(self, life: EpochMark) -> None:
        # Of one length, in one write: a crash leaves the old text or the new one.
        os.pwrite(self._file, msgspec.json.encode(life).ljust(128) + b"\n", 0)

    def close(self) -> None:
        os.close(self._file)


def look_back(connection: sqlite3.Connection, known: EpochMark | None, *, is_new: bool) -> str:
    """Return why the store must begin a new life; empty when it goes on as it is.

    ``known`` is what the file beside it says.
    """
    if is_new:
        return "" if known is None else STORE_LOST
    epoch, copied_at = connection.execute("SELECT epoch, copied_at FROM life").fetchone()
    if copied_at is not None:
        return STORE_RESTORED
    if known is None:
        return ""
    return STORE_RESTORED if epoch != known.epoch or last_entry(connection) < known.entry else ""


def mark_copy(connection: sqlite3.Connection, at: int) -> None:
    """Note in a copy of a store that it is one: the process that opens it to work on it begins a new life."""
    connection.execute("UPDATE life SET copied_at = ?", (at,))


def last_entry(connection: Connection) -> int:
    """Return the place of the last event that was ever written."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return 0 if row is None else int(row[0])
