"""Statements about changes whose events wait for the details of their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from dockbell.core.comparing.page_diff import Amended, Finding, Note, Pending
from dockbell.core.model import Change, ChangeKind, Via
from dockbell.core.moment import from_micros, to_micros
from dockbell.ports import Awaited, Compose
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.outbox import PUT_BODY, append_events, last_sequence, write_notes
from dockbell.stores.sql.transaction import marks, micros, moment, transaction

_AWAITED: Final = "key, record, body, kind, since, until, modified, late, via, is_first, made_at, queued_at"


def queue_details(connection: Connection, feed_id: int, pending: Sequence[Pending], at: int) -> None:
    """Let changes wait; one more change of a record that waits already joins it, under the kind of the first."""
    connection.executemany(
        "INSERT INTO details (feed, queued_at, key, record, body, kind, since, until, modified, late, via,"
        " is_first, made_at)"
        " VALUES (?, ?, ?, coalesce(?, (SELECT id FROM records WHERE feed = ? AND key = ?)), ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (record) DO UPDATE SET body = excluded.body, until = excluded.until,"
        " modified = excluded.modified, made_at = coalesce(excluded.made_at, details.made_at)",
        (
            (
                feed_id,
                at,
                each.key,
                each.row,
                feed_id,
                each.key,
                each.raw,
                each.kind,
                micros(each.since),
                to_micros(each.until),
                micros(each.modified),
                each.late,
                each.via,
                each.is_first,
                micros(each.made_at),
            )
            for each in pending
        ),
    )


def amend_details(connection: Connection, amended: Sequence[Amended]) -> None:
    """Let changes that wait come to what the list shows now."""
    connection.executemany(
        "UPDATE details SET body = ?, modified = ? WHERE record = ?",
        ((each.raw, micros(each.modified), each.row) for each in amended),
    )


def load_awaited(connection: Connection, feed_id: int, limit: int) -> list[Awaited]:
    """Return changes that wait: the least often postponed first, then the oldest."""
    return [
        _read(row)
        for row in connection.execute(
            f"SELECT {_AWAITED} FROM details WHERE feed = ? ORDER BY attempts, queued_at LIMIT ?", (feed_id, limit)
        )
    ]


def postpone(connection: Connection, record: int) -> None:
    """Note that the detail of a record was asked for in vain."""
    connection.execute("UPDATE details SET attempts = attempts + 1 WHERE record = ?", (record,))


def _read(row: Sequence[Any]) -> Awaited:
    key, record, body, kind, since, until, modified, late, via, is_first, made_at, queued_at = row
    pending = Pending(
        key,
        record,
        body,
        ChangeKind(kind),
        moment(since),
        from_micros(until),
        moment(modified),
        bool(late),
        Via(via),
        bool(is_first),
        moment(made_at),
    )
    return Awaited(record, pending, from_micros(queued_at))


def complete(
    connection: Connection,
    feed_id: int,
    record: int,
    detect: Callable[[Pending, bytes | None, int], Change | None],
    compose: Compose,
    *,
    listed: bytes | None,
    now: datetime,
) -> int:
    """Publish a change that waited, and store the record with its detail; return how many events it gave.

    It goes on waiting where the list shows something else than ``listed``.
    """
    with transaction(connection):
        row = connection.execute(f"SELECT {_AWAITED} FROM details WHERE record = ?", (record,)).fetchone()
        if row is None:
            return 0
        awaited = _read(row)
        if listed not in (None, awaited.pending.raw):
            return 0
        return _publish(connection, feed_id, [awaited], detect, compose, now=now)


def load_waits(connection: Connection, feed_id: int) -> list[datetime]:
    """Return since when changes wait, each time once."""
    rows = connection.execute("SELECT DISTINCT queued_at FROM details WHERE feed = ?", (feed_id,))
    return [from_micros(at) for (at,) in rows]


def complete_overdue(
    connection: Connection,
    feed_id: int,
    since: Sequence[datetime],
    detect: Callable[[Pending, bytes | None, int], Change | None],
    compose: Compose,
    *,
    limit: int,
    now: datetime,
) -> int:
    """Publish changes that wait since one of some times; return how many events they gave."""
    queued = [to_micros(at) for at in since[:limit]]
    with transaction(connection):
        overdue = [
            _read(row)
            for row in connection.execute(
                f"SELECT {_AWAITED} FROM details WHERE feed = ? AND queued_at IN ({marks(queued)})"
                " ORDER BY queued_at LIMIT ?",
                (feed_id, *queued, limit),
            )
        ]
        return _publish(connection, feed_id, overdue, detect, compose, now=now)


def _publish(
    connection: Connection,
    feed_id: int,
    awaited: Sequence[Awaited],
    detect: Callable[[Pending, bytes | None, int], Change | None],
    compose: Compose,
    *,
    now: datetime,
) -> int:
    """End the waiting of changes, and publish what is left of them; return how many events they gave."""
    changes = []
    for record, pending in ((each.row, each.pending) for each in awaited):
        body, revision = connection.execute(
            "SELECT body, revision FROM records LEFT JOIN bodies ON record = id WHERE id = ?", (record,)
        ).fetchone()
        connection.execute("DELETE FROM details WHERE record = ?", (record,))
        has_before = pending.kind is ChangeKind.UPDATED and not pending.is_first
        change = detect(pending, body if has_before else None, revision)
        if change is None:
            continue
        connection.execute("UPDATE records SET revision = ? WHERE id = ?", (change.revision, record))
        connection.execute(PUT_BODY, (record, change.after))
        changes.append(change)
    before = last_sequence(connection, feed_id)
    numbers = append_events(connection, feed_id, changes, compose, now)
    for change in changes:
        note = Note(change.key.text, Finding(change.kind.value), micros(change.modified_at), change=change)
        write_notes(connection, feed_id, [note], numbers, via=change.via, at=to_micros(now))
    return last_sequence(connection, feed_id) - before
