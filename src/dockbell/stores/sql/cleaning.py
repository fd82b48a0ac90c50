"""Statements that take out of what is stored what must not be stored any more, so that no byte of it is left.

How far that has come is kept with the feed, as ``{"drop": [pointers], "stage": …, "place": …}``: the rows of its
records up to a place, then its events up to a sequence; what is in quarantine; then only the files are to be wiped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from dockbell.core.model import DIGEST_SIZE
from dockbell.core.publishing.erasure import Erasure
from dockbell.stores.sql.attempts import forget_answers
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.lease import Lease, update_feed

_RECORDS: Final = "records"
_EVENTS: Final = "events"
_QUARANTINE: Final = ""
_FILES: Final = "files"
_NO_HASH: Final = bytes(DIGEST_SIZE)


def mark_dropped(connection: Connection, lease: Lease, drop: Sequence[str]) -> bool:
    """Note which members are never stored from now on; return whether that has changed.

    Of those that are new something may be stored already: cleaning begins then, or goes on.
    """
    with transaction(connection):
        dropped, cleaning = connection.execute(
            "SELECT dropped, cleaning FROM feeds WHERE id = ?", (lease.id,)
        ).fetchone()
        (is_empty,) = connection.execute(
            "SELECT NOT (EXISTS (SELECT 1 FROM records WHERE feed = :id) OR EXISTS (SELECT 1 FROM quarantine WHERE"
            " feed = :id) OR EXISTS (SELECT 1 FROM events WHERE feed = :id))",
            {"id": lease.id},
        ).fetchone()
        wanted = sorted(drop)
        gone = wanted if is_empty else sorted(set(msgspec.json.decode(dropped)).intersection(wanted))
        going: str | None = None
        if gone != wanted:
            is_begun = cleaning is not None and msgspec.json.decode(cleaning)["drop"] == wanted
            going = cleaning if is_begun else _write({"drop": wanted, "stage": _RECORDS, "place": 0})
        if (_write(gone), going) == (dropped, cleaning):
            return False
        update_feed(connection, lease, "dropped = ?, cleaning = ?", (_write(gone), going))
    return True


def clean(
    connection: Connection, lease: Lease, erasure: Erasure, fingerprint: Callable[[bytes], bytes] | None, limit: int
) -> tuple[int, int] | None:
    with transaction(connection):
        (text,) = connection.execute("SELECT cleaning FROM feeds WHERE id = ?", (lease.id,)).fetchone()
        if text is None:
            return None
        state = msgspec.json.decode(text)
        stage, place = state["stage"], state["place"]
        records = events = 0
        if stage == _RECORDS:
            end, records = _clean_records(connection, lease.id, erasure, fingerprint, after=place, limit=limit)
            state |= {"stage": _RECORDS, "place": end} if end is not None else {"stage": _EVENTS, "place": 0}
        elif stage == _EVENTS:
            end, events = _clean_events(connection, lease.id, erasure, place, limit)
            state |= {"stage": _EVENTS, "place": end} if end is not None else {"stage": _QUARANTINE, "place": 0}
        elif stage == _QUARANTINE:
            # What cannot be read cannot be cleaned either: it comes again, and without its text.
            connection.execute("DELETE FROM quarantine WHERE feed = ? AND key = ''", (lease.id,))
            connection.execute("UPDATE quarantine SET body = ? WHERE feed = ?", (b"", lease.id))
            forget_answers(connection, lease.id)  # receivers may have quoted anything
            state |= {"stage": _FILES}
        else:
            return None
        update_feed(connection, lease, "cleaning = ?", [_write(state)])
    return records, events


def end_cleaning(connection: Connection, lease: Lease) -> None:
    with transaction(connection):
        (text,) = connection.execute("SELECT cleaning FROM feeds WHERE id = ?", (lease.id,)).fetchone()
        if text is not None:
            dropped = _write(msgspec.json.decode(text)["drop"])
            update_feed(connection, lease, "dropped = ?, cleaning = NULL, baselines = baselines + 1", [dropped])


def _clean_records(
    connection: Connection,
    feed_id: int,
    erasure: Erasure,
    fingerprint: Callable[[bytes], bytes] | None,
    *,
    after: int,
    limit: int,
) -> tuple[int | None, int]:
    """Clean the next records; return the row of the last, None when there are no more, and how many held something."""
    rows = connection.execute(
        "SELECT records.row, records.key, length(raw_hash), revision, bodies.body, holds.body, details.body"
        " FROM records LEFT JOIN bodies ON bodies.feed = records.feed AND bodies.row = records.row"
        " LEFT JOIN holds ON holds.feed = records.feed AND holds.row = records.row"
        " LEFT JOIN details ON details.feed = records.feed AND details.row = records.row"
        " WHERE records.feed = ? AND records.row > ? ORDER BY records.row LIMIT ?",
        (feed_id, after, limit),
    ).fetchall()
    changed = 0
    for row, key, size, revision, *texts in rows:
        body, held, awaited = (None if text is None else erasure.stored(text) for text in texts)
        if [body, held, awaited] == texts:
            continue
        changed += 1
        place = (feed_id, row)
        connection.execute("UPDATE bodies SET body = ? WHERE feed = ? AND row = ?", (body, *place))
        connection.execute(
            "UPDATE holds SET body = ?, fingerprint = ? WHERE feed = ? AND row = ?", (held, _NO_HASH, *place)
        )
        connection.execute("UPDATE details SET body = ? WHERE feed = ? AND row = ?", (awaited, *place))
        # Hashes tell of what they were made of, too.
        connection.execute("UPDATE notes SET fingerprint = NULL WHERE feed = ? AND key = ?", (feed_id, key))
        connection.execute("UPDATE records SET superseded = NULL WHERE feed = ? AND row = ?", place)
        if body is not None and size == DIGEST_SIZE:
            raw_hash = blake2b(body, digest_size=DIGEST_SIZE).digest()
            stored = raw_hash if revision == 0 or fingerprint is None else _find(fingerprint, body, raw_hash)
            connection.execute(
                "UPDATE records SET raw_hash = ?, fingerprint = ? WHERE feed = ? AND row = ?",
                (raw_hash, stored, *place),
            )
    return rows[-1][0] if rows else None, changed


def _find(fingerprint: Callable[[bytes], bytes], body: bytes, otherwise: bytes) -> bytes:
    try:
        return fingerprint(body)
    except ValueError:
        return otherwise


def _clean_events(
    connection: Connection, feed_id: int, erasure: Erasure, after: int, limit: int
) -> tuple[int | None, int]:
    """Clean the next events; return the number of the last, None when there are no more, and how many held some."""
    rows = connection.execute(
        "SELECT sequence, key, body FROM events WHERE feed = ? AND sequence > ? ORDER BY sequence LIMIT ?",
        (feed_id, after, limit),
    ).fetchall()
    changed = [
        (cleaned, feed_id, sequence) for sequence, key, body in rows if key and (cleaned := erasure.event(body)) != body
    ]
    rewrite_events(connection, changed)
    return rows[-1][0] if rows else None, len(changed)


def rewrite_events(connection: Connection, events: Iterable[tuple[bytes, int, int]]) -> None:
    """Give events other bodies; each comes with its feed and its sequence."""
    connection.executemany("UPDATE events SET body = ? WHERE feed = ? AND sequence = ?", events)


def _write(value: Any) -> str:
    return msgspec.json.encode(value).decode()
