"""How much of the disk a store uses."""

from __future__ import annotations

import os
import sqlite3

from dockbell.ports import Footprint


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
    """Return how many bytes a store has."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages * size)
