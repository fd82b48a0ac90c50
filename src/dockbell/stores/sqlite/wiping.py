"""Removes what was deleted from the store's files."""

from __future__ import annotations

import sqlite3
from typing import Final

_LOG_BUSY: Final = "the write-ahead log of the store cannot be emptied while a process reads it"
_PATIENCE: Final = 1000
"""How long to wait for readers of the log, in milliseconds; no write is possible meanwhile."""


def wipe(connection: sqlite3.Connection, rewrite_most: int | None) -> str:
    """Leave nothing in the store's files of what was deleted; return why something may be left, empty when nothing is.

    What is deleted is overwritten with zeros as it is (``secure_delete``), but pages that were divided or joined before
    may hold old copies of what they held, in parts that they do not use: only writing the whole file anew removes them.

    Args:
        connection: To the store; no other of this process may be in a transaction.
        rewrite_most: A larger file, in bytes, is not written anew: nothing else can be written meanwhile. None: any is.
    """
    if not _empty_log(connection):
        return _LOG_BUSY  # before all is written anew in vain
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    problem = ""
    if rewrite_most is not None and pages * size > rewrite_most:
        problem = (
            f"the store has {pages * size >> 20} MB, too much to rewrite unless the daemon is stopped: unused"
            " parts of it may hold traces"
        )
    else:
        try:
            connection.execute("VACUUM")
        except sqlite3.Error as error:
            problem = f"the store could not be rewritten ({error}), unused parts of it may hold traces"
    return problem or ("" if _empty_log(connection) else _LOG_BUSY)


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Return whether the log beside the store is empty now; not while a reader needs it."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {min(patience, _PATIENCE)}")
    try:
        is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return not is_busy
