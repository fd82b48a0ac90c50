"""Statements that erase what is stored of one record, but for its key, its revision and its timestamp."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from dockbell.core import pointer
from dockbell.core.comparing.page_diff import PURGED, Finding, Note
from dockbell.core.document import decode
from dockbell.core.key import decode as split_key
from dockbell.core.key import key_of
from dockbell.core.model import DIGEST_SIZE, Change, Key, Via
from dockbell.core.moment import to_micros
from dockbell.core.publishing.erasure import empty_event
from dockbell.ports import Compose, Purged
from dockbell.stores.sql.attempts import forget_answers
from dockbell.stores.sql.cleaning import rewrite_events
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.lease import Lease, update_feed
from dockbell.stores.sql.outbox import append_events, write_notes

_COLUMNS: Final = "row, key, length(raw_hash), revision, fingerprint, gone_at, body"
_UNDER_THIS_KEY: Final = "WHERE feed = :feed AND key = :key"
_UNDER_A_FORMER_KEY: Final = "WHERE feed = :feed AND key > ' ' AND key < '!' AND key = ' ' || row || ' ' || :key"
"""Under a key that begins with a space it was stored while the feed's key was another, see feeds.save_read_settings."""


def purge(
    connection: Connection,
    lease: Lease,
    key: str,
    detect: Callable[[Key, int, datetime], Change],
    compose: Compose,
    *,
    now: datetime,
) -> Purged:
    feed_id = lease.id
    with transaction(connection):
        update_feed(connection, lease)
        (pointers,) = connection.execute("SELECT key FROM feeds WHERE id = ?", (feed_id,)).fetchone()
        rows = [
            row
            for which in (_UNDER_THIS_KEY, _UNDER_A_FORMER_KEY)
            for row in connection.execute(
                f"SELECT {_COLUMNS} FROM records LEFT JOIN bodies USING (feed, row) {which}",
                {"feed": feed_id, "key": key},
            ).fetchall()
        ]
        at, change = to_micros(now), None
        for row, text, size, revision, fingerprint, gone_at, body in rows:
            is_news = text == key and size == DIGEST_SIZE and fingerprint != PURGED
            if is_news:
                change = detect(_find_key(pointers, key, body), revision, now)
            for table in ("bodies", "holds", "details"):
                connection.execute(f"DELETE FROM {table} WHERE feed = ? AND row = ?", (feed_id, row))
            if size < DIGEST_SIZE and fingerprint != PURGED:
                # It was only met, never published: its return would be no restoration.
                connection.execute("DELETE FROM records WHERE feed = ? AND row = ?", (feed_id, row))
                continue
            connection.execute(
                "UPDATE records SET raw_hash = :none, fingerprint = :none, superseded = NULL, held = false,"
                " ignored_until_seen = 0, suspected_at = NULL, there_at = NULL, missing_at = NULL, absences = 0,"
                " gone_at = :gone, revision = :revision WHERE feed = :feed AND row = :row",
                {"none": PURGED, "gone": gone_at or at, "revision": revision + is_news, "feed": feed_id, "row": row},
            )
        quarantined = connection.execute("DELETE FROM quarantine WHERE feed = ? AND key = ?", (feed_id, key)).rowcount
        connection.execute("UPDATE notes SET fingerprint = NULL WHERE feed = ? AND key = ?", (feed_id, key))
        forget_answers(connection, feed_id, key)
        events = _empty_events(connection, feed_id, key)
        if change is not None:
            numbers = append_events(connection, lease, [change], compose, now).numbers
            note = Note(key, Finding.PURGED, change=change)
            write_notes(connection, feed_id, [note], numbers, via=Via.OPERATOR, at=at)
    return Purged(bool(rows or events or quarantined), events, change)


def _empty_events(connection: Connection, feed_id: int, key: str) -> int:
    """Empty the kept events of a record; return how many held something."""
    emptied = [
        (empty, feed_id, sequence)
        for sequence, body in connection.execute(
            "SELECT sequence, body FROM events WHERE feed = ? AND key = ?", (feed_id, key)
        )
        if (empty := empty_event(body)) != body
    ]
    rewrite_events(connection, emptied)
    return len(emptied)


def _find_key(pointers: str | None, text: str, body: bytes | None) -> Key:
    """Return a record's key with its typed original, where its body still tells it."""
    if pointers is not None and body is not None:
        with suppress(ValueError):
            key = key_of(decode(body), [pointer.parse(each) for each in json.loads(pointers)])
            if key.text == text:
                return key
    parts = split_key(text)
    return Key(text, parts[0] if len(parts) == 1 else list(parts))
