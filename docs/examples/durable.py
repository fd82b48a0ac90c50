"""A memory of ids that survives a restart: what an event wants is done together with noting its id, or not at all."""

import sqlite3


class SeenInDatabase:
    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection
        connection.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP)")

    def __contains__(self, event_id):
        return self._connection.execute("SELECT 1 FROM seen WHERE id = ?", (event_id,)).fetchone() is not None

    def add(self, event_id):
        self._connection.execute("INSERT OR IGNORE INTO seen (id) VALUES (?)", (event_id,))


def take(connection: sqlite3.Connection, seen: SeenInDatabase, event):
    """Do what an event wants, once."""
    with connection:  # commits at the end; an error undoes all of it, and the event comes again
        if event.id not in seen:
            connection.execute("INSERT INTO alerts (text) VALUES (?)", (f"{event.type} {event.subject}",))
            seen.add(event.id)
