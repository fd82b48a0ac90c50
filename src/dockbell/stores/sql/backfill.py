"""Statements about stored records for sinks: as they were when a sink began, and as they are now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Final, TypeAlias

import msgspec

from dockbell.core import pointer
from dockbell.core.document import decode
from dockbell.core.key import KeyMissing, key_of
from dockbell.core.key import decode as split_key
from dockbell.core.model import NOTICES, ChangeKind, Feed, Key
from dockbell.core.moment import parse_moment, to_micros
from dockbell.core.publishing.settlement import StartOffset
from dockbell.ports import BackfillRecord, StoredState
from dockbell.stores.sql.connection import Connection, reading

_Shape: TypeAlias = tuple[str, str | None]
"""Where a feed's records have their key, a JSON array of pointers, and their own timestamp, a pointer."""
_NONE: Final = b"null"
_KNOWN: Final = """
    records.row, records.key, records.revision, gone_at, bodies.body,
    length(raw_hash) < 16 OR (details.row IS NOT NULL AND (details.kind <> 'updated' OR details.is_first))
"""
"""What is read of a record; last, whether its first event is still to come: it was only met, or waits for its detail.

A key with a space is of a time when the feed's key was another, see ``feeds.save_read_settings``.
"""
_RECORDS: Final = """
    records LEFT JOIN bodies ON bodies.feed = records.feed AND bodies.row = records.row
        LEFT JOIN details ON details.feed = records.feed AND details.row = records.row
"""
_MAKES: Final = (ChangeKind.CREATED, ChangeKind.RESTORED, ChangeKind.SNAPSHOT)
"""Changes before which there was no record."""


class _Data(msgspec.Struct):
    revision: int
    before: msgspec.Raw = msgspec.Raw(_NONE)


class _Body(msgspec.Struct):
    data: _Data


_DECODER: Final = msgspec.json.Decoder(_Body)


def read_backfill(
    connection: Connection, feed: Feed, start: StartOffset, after: int, limit: int
) -> tuple[Sequence[BackfillRecord], int, bool] | None:
    with reading(connection):
        found = connection.execute(
            "SELECT id, passes, key, updated_at FROM feeds WHERE source = ? AND resource = ?", astuple(feed)
        ).fetchone()
        if found is None or not (found[1] or feed == NOTICES):  # of which nothing is read, or stored
            return None
        feed_id, _, *shape = found
        rows = connection.execute(
            f"SELECT {_KNOWN} FROM {_RECORDS}"
            " WHERE records.feed = ? AND records.row > ? AND records.key NOT LIKE '% %' ORDER BY records.row LIMIT ?",
            (feed_id, after, limit),
        ).fetchall()
        told = [_look_back(connection, feed_id, (shape[0], shape[1]), start, row) for row in rows]
    end = rows[-1][0] if rows else after
    return [each for each in told if each is not None], end, len(rows) < limit


def find_backfilled(connection: Connection, feed: Feed, start: StartOffset, key: str) -> BackfillRecord | None:
    with reading(connection):
        row = connection.execute(
            f"SELECT {_KNOWN}, records.feed, feeds.key, updated_at FROM {_RECORDS}"
            " JOIN feeds ON feeds.id = records.feed WHERE source = ? AND resource = ? AND records.key = ?",
            (*astuple(feed), key),
        ).fetchone()
        return None if row is None else _look_back(connection, row[-3], (row[-2], row[-1]), start, row[:-3])


def _look_back(
    connection: Connection, feed_id: int, shape: _Shape, start: StartOffset, row: Sequence[Any]
) -> BackfillRecord | None:
    """Return the record of a row as it was then: what its first later event tells of it, else as it is now."""
    place, key, revision, gone_at, body, is_unpublished = row
    later = connection.execute(
        "SELECT change, body FROM events WHERE feed = ? AND key = ? AND sequence > ? ORDER BY sequence LIMIT 1",
        (feed_id, key, start.origin),
    ).fetchone()
    if later is not None:
        change, event = later
        data = _DECODER.decode(event).data
        before = bytes(data.before)
        if change in _MAKES or before == _NONE:
            return None
        return _tell(place, key, shape, data.revision - 1, before)
    if is_unpublished:
        return None
    if gone_at is None:
        return _tell(place, key, shape, revision, body)
    if start.lost_since is not None and gone_at >= to_micros(start.lost_since):
        return _tell(place, key, shape, revision, body, is_gone=True)
    return None


def _tell(
    row: int, text: str, shape: _Shape, revision: int, body: bytes | None, *, is_gone: bool = False
) -> BackfillRecord:
    """Return a record to publish, with its own timestamp and the typed original of its key from its body."""
    pointers, updated_at = shape
    document = decode(body or b"{}")
    try:
        key = key_of(document, [pointer.parse(each) for each in json.loads(pointers)])
    except KeyMissing:
        parts = split_key(text)
        key = Key(text, parts[0] if len(parts) == 1 else list(parts))
    if is_gone:
        return BackfillRecord(row, key, revision, None)
    # Not as it is stored beside the record, for that is only known of the record as it is now.
    modified = None if updated_at is None else parse_moment(pointer.resolve(document, pointer.parse(updated_at)))
    return BackfillRecord(row, key, revision, body, modified)


def read_stored(connection: Connection, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
    with reading(connection):
        rows = connection.execute(
            "SELECT row, feed, key, revision, CASE WHEN gone_at IS NULL THEN body END FROM records"
            " LEFT JOIN bodies USING (feed, row)"
            " WHERE feed = (SELECT id FROM feeds WHERE source = ? AND resource = ?) AND row > ? ORDER BY row LIMIT ?",
            (*astuple(feed), after, limit),
        ).fetchall()
        kept = []
        for row, feed_id, text, revision, body in rows:
            key = text.rpartition(" ")[2]
            if key == text:
                kept.append(StoredState(row, feed, key, revision, body))
            # Stored under another key (feeds.save_read_settings): it is gone, unless the key is used again.
            elif not connection.execute("SELECT 1 FROM records WHERE feed = ? AND key = ?", (feed_id, key)).fetchone():
                kept.append(StoredState(row, feed, key, revision, None))
    return kept, rows[-1][0] if rows else after


def read_changed(connection: Connection, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
    with reading(connection):
        found = connection.execute("SELECT id FROM feeds WHERE source = ? AND resource = ?", astuple(feed)).fetchone()
        rows = connection.execute(
            "SELECT events.sequence, records.row, records.key, records.revision,"
            " CASE WHEN gone_at IS NULL THEN bodies.body END"
            " FROM events LEFT JOIN records ON records.feed = events.feed AND records.key = events.key"
            " LEFT JOIN bodies ON bodies.feed = records.feed AND bodies.row = records.row"
            " WHERE events.feed = ? AND events.sequence > ? ORDER BY events.sequence LIMIT ?",
            (found[0] if found else 0, after, limit),
        ).fetchall()
    kept = {row[1]: StoredState(row[1], feed, *row[2:]) for row in rows if row[1] is not None}
    return list(kept.values()), rows[-1][0] if rows else after
