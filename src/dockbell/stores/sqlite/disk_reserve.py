"""Room on the disk: what a store uses, and what is kept for the hour when the disk is full.

That is ``<store>.reserve``, a file that holds nothing. When the disk is full, SQLite can neither move its log into the
store, which may grow by that, nor begin the log anew; so not even what would make room, deleting, can be written. The
reserve is given up then: what was settled can be noted, the janitor can delete, and the store can be closed in order.
It is taken back before anything is read again.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from dockbell.host.ownership import open_own
from dockbell.ports import Footprint

RESERVED: Final = 8 * 1024 * 1024
"""Bytes: twice what SQLite lets its log grow to before it moves it into the store."""


class Reserve:
    """The file, whether it is there or not."""

    def __init__(self, path: Path) -> None:
        self.path = Path(f"{path}.reserve")

    def take(self) -> bool:
        """Take the room, if it is not taken yet; return whether it is now."""
        try:
            file = open_own(self.path)
        except OSError:
            return False
        try:
            if os.fstat(file).st_size < RESERVED:
                os.posix_fallocate(file, 0, RESERVED)
        except OSError:
            self.give_up()
            return False
        finally:
            os.close(file)
        return True

    def give_up(self) -> None:
        """Leave the room to the store."""
        self.path.unlink(missing_ok=True)


def measure(connection: sqlite3.Connection) -> Footprint:
    """Return how much of its disk the store uses, free pages of the file left out."""
    _, _, path = connection.execute("PRAGMA database_list").fetchone()
    disk = os.statvfs(path)
    free = find_free(connection)
    return Footprint(find_size(connection) - free, disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize, free)


def find_free(connection: sqlite3.Connection) -> int:
    """Return how many bytes of a store are in no use."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(free * size)


def find_size(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages * size)
