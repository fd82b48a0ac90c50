"""Statements about changes whose events wait for the details of their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from dockbell.core.comparing.page_diff import Amended, Finding, Note, Pending
from dockbell.core.model import Change, ChangeKind, Via
from dockbell.core.moment import from_micros, micros, to_micros
from dockbell.ports import Awaited, Compose
from dockbell.stores.sql.connection import Connection, marks, moment, transaction
from dockbell.stores.sql.lease import Lease, update_feed
from dockbell.stores.sql.outbox import PUT_BODY, append_events, last_sequence, write_notes

_AWAITED: Final = "key, row, body, kind, since, until, modified, late, via, is_first, visible_at, queued_at"


def queue_details(connection: Connection, feed_id: int, pending: Sequence[Pending], at: int) -> None:
    """Let changes wait; one more change of a record that waits already joins it, under the kind of the first."""
    connection.executemany(
        "INSERT INTO details"
        " (feed, queued_at, key, row, body, kind, since, until, modified, late, via, is_first, visible_at) VALUES"
        " (?, ?, ?, coalesce(?, (SELECT row FROM records WHERE feed = ? AND key = ?)), ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (feed, row) DO UPDATE SET body = excluded.body, until = excluded.until,"
        " modified = excluded.modified, visible_at = coalesce(excluded.visible_at, details.visible_at)",
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
                micros(each.visible_at),
            )
            for each in pending
        ),
    )


def amend_details(connection: Connection, feed_id: int, amended: Sequence[Amended]) -> None:
    """Let changes that wait come to what the list shows now."""
    connection.executemany(
        "UPDATE details SET body = ?, modified = ? WHERE feed = ? AND row = ?",
        ((each.raw, micros(each.modified), feed_id, each.row) for each in amended),
    )


def load_awaited(connection: Connection, feed_id: int, limit: int) -> list[Awaited]:
    return [
        _read(found)
        for found in connection.execute(
            f"SELECT {_AWAITED} FROM details WHERE feed = ? ORDER BY attempts, queued_at LIMIT ?", (feed_id, limit)
        )
    ]


def postpone(connection: Connection, lease: Lease, row: int) -> None:
    with transaction(connection):
        update_feed(connection, lease)
        connection.execute("UPDATE details SET attempts = attempts + 1 WHERE feed = ? AND row = ?", (lease.id, row))


def _read(found: Sequence[Any]) -> Awaited:
    key, row, body, kind, since, until, modified, late, via, is_first, visible_at, queued_at = found
    pending = Pending(
        key,
        row,
        body,
        ChangeKind(kind),
        moment(since),
        from_micros(until),
        moment(modified),
        bool(late),
        Via(via),
        bool(is_first),
        moment(visible_at),
    )
    return Awaited(row, pending, from_micros(queued_at))


def complete(
    connection: Connection,
    lease: Lease,
    row: int,
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
        found = connection.execute(
            f"SELECT {_AWAITED} FROM details WHERE feed = ? AND row = ?", (lease.id, row)
        ).fetchone()
        if found is None:
            return 0
        awaited = _read(found)
        if listed not in (None, awaited.pending.raw):
            return 0
        return _publish(connection, lease, [awaited], detect, compose, now=now)


def load_waits(connection: Connection, feed_id: int) -> list[datetime]:
    rows = connection.execute("SELECT DISTINCT queued_at FROM details WHERE feed = ?", (feed_id,))
    return [from_micros(at) for (at,) in rows]


def complete_overdue(
    connection: Connection,
    lease: Lease,
    since: Sequence[datetime],
    detect: Callable[[Pending, bytes | None, int], Change | None],
    compose: Compose,
    *,
    limit: int,
    now: datetime,
) -> int:
    queued = [to_micros(at) for at in since[:limit]]
    with transaction(connection):
        overdue = [
            _read(found)
            for found in connection.execute(
                f"SELECT {_AWAITED} FROM details WHERE feed = ? AND queued_at IN ({marks(queued)})"
                " ORDER BY queued_at LIMIT ?",
                (lease.id, *queued, limit),
            )
        ]
        return _publish(connection, lease, overdue, detect, compose, now=now)


def _publish(
    connection: Connection,
    lease: Lease,
    awaited: Sequence[Awaited],
    detect: Callable[[Pending, bytes | None, int], Change | None],
    compose: Compose,
    *,
    now: datetime,
) -> int:
    """End the waiting of changes, and publish what is left of them; return how many events they gave."""
    changes = []
    for row, pending in ((each.row, each.pending) for each in awaited):
        body, revision = connection.execute(
            "SELECT body, revision FROM records LEFT JOIN bodies USING (feed, row) WHERE feed = ? AND row = ?",
            (lease.id, row),
        ).fetchone()
        connection.execute("DELETE FROM details WHERE feed = ? AND row = ?", (lease.id, row))
        has_before = pending.kind is ChangeKind.UPDATED and not pending.is_first
        change = detect(pending, body if has_before else None, revision)
        if change is None:
            continue
        connection.execute(
            "UPDATE records SET revision = ? WHERE feed = ? AND row = ?", (change.revision, lease.id, row)
        )
        connection.execute(PUT_BODY, (lease.id, row, change.after))
        changes.append(change)
    before = last_sequence(connection, lease.id)
    numbers = append_events(connection, lease, changes, compose, now).numbers
    for change in changes:
        note = Note(change.key.text, Finding(change.kind.value), micros(change.modified_at), change=change)
        write_notes(connection, lease.id, [note], numbers, via=change.via, at=to_micros(now))
    return last_sequence(connection, lease.id) - before
