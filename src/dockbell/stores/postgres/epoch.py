"""The life of a store: whether the database that is there is the one that was there.

Event ids hold the *epoch*, the random mark of one life; a store that comes back from a backup must begin a new one,
else it would give ids a second time to other events. A database knows its place: the cluster, its timeline, and the
number of a table. A dump that is read again makes other tables; another cluster, a recovery to an earlier time and a
standby that takes over have another mark or timeline. What is not found is a copy of the server's files that is put
back as it was, without recovery; and a database that was lost and made anew begins a new life without stating the gap.
"""

from __future__ import annotations

from typing import Final

from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.life import STORE_RESTORED, begin_anew, end_beginning

TIMELINE: Final = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
"""The timeline that is written now, eight hexadecimal digits; the control file has it only from the next checkpoint."""
PLACE: Final = (
    f"SELECT system_identifier || '/' || {TIMELINE} || '/' || CAST(to_regclass('life') AS oid) FROM pg_control_system()"
)
"""The query for where the database is."""


def begin_life(connection: Connection, epoch: str, now: int) -> None:
    """Begin a new life, under ``epoch``, where the database is another one; else go on."""
    with transaction(connection):
        (place,) = connection.execute(PLACE).fetchone()
        (known,) = connection.execute("SELECT place FROM schema_version").fetchone()
        if known in ("", place):
            end_beginning(connection)
        else:
            begin_anew(connection, epoch, STORE_RESTORED, now)
        connection.execute("UPDATE schema_version SET place = ?", (place,))
