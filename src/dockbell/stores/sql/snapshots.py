"""Statements about snapshots: what is stored of records, and the commit of a page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from operator import itemgetter
from typing import Final

import msgspec

from dockbell.core.comparing.holding import Hold
from dockbell.core.comparing.page_diff import (
    DIGEST_SIZE,
    UNDECIDED,
    Bad,
    Finding,
    Note,
    PageDiff,
    Snapshots,
    Stored,
    Write,
)
from dockbell.core.model import Change, Statement, Via
from dockbell.core.moment import to_micros
from dockbell.ports import Committed, Compose
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.details import amend_details, queue_details
from dockbell.stores.sql.dialect import BY_ROW
from dockbell.stores.sql.outbox import PUT_BODY, append_events, last_sequence, write_notes
from dockbell.stores.sql.transaction import marks, moment, portions, transaction, upsert

_BAD_BODY_MOST: Final = 65_536
_BAD_MOST: Final = 1000
"""Records in quarantine per feed: those without a key may look new each time."""
_KEY: Final = itemgetter(-1)
_PUT_HOLD: Final = upsert("holds", ["record"], "fingerprint", "asked_at", "body")
_DELETE_HOLD: Final = "DELETE FROM holds WHERE record = ?"


@dataclass(frozen=True, slots=True)
class FeedSnapshots:
    """Stored snapshots of one feed, as the change detector reads them."""

    connection: Connection
    feed_id: int

    def find(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return what is stored of these keys."""
        found: dict[str, Stored] = {}
        for some in portions(keys):
            rows = self.connection.execute(
                "SELECT id, raw_hash, fingerprint, modified, revision, gone_at,"
                " suspected_at IS NOT NULL OR dormant <> 0, superseded, held, key"
                f" FROM records WHERE feed = ? AND key IN ({marks(some)})",
                (self.feed_id, *some),
            ).fetchall()
            found.update(zip(map(_KEY, rows), map(Stored._make, rows), strict=True))
        return found

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """Return the raw JSON of these rows."""
        return read_bodies(self.connection, rows)

    def holds(self, rows: Sequence[int]) -> Mapping[int, Hold]:
        """Return the held readings of these rows."""
        return {
            row: Hold(fingerprint, asked_at)
            for some in portions(rows)
            for row, fingerprint, asked_at in self.connection.execute(
                f"SELECT record, fingerprint, asked_at FROM holds WHERE record IN ({marks(some)})", some
            )
        }

    def quarantined(self, digests: Sequence[bytes]) -> Collection[bytes]:
        """Return those of these digests whose records are in quarantine."""
        return {
            digest
            for some in portions(digests)
            for (digest,) in self.connection.execute(
                f"SELECT digest FROM quarantine WHERE feed = ? AND digest IN ({marks(some)})", (self.feed_id, *some)
            )
        }


def read_bodies(connection: Connection, rows: Sequence[int]) -> Mapping[int, bytes]:
    """Return the raw JSON of rows."""
    return {
        row: body
        for some in portions(rows)
        for row, body in connection.execute(f"SELECT record, body FROM bodies WHERE record IN ({marks(some)})", some)
    }


def commit_page(
    connection: Connection,
    feed_id: int,
    detect: Callable[[Snapshots], PageDiff],
    compose: Compose,
    *,
    via: Via,
    announce: Callable[[PageDiff], Statement | None] | None = None,
    now: datetime,
) -> Committed:
    """Compare one page with the stored records, and store its snapshots and events together.

    Nothing is written, and no transaction opened, for a page that changes nothing; there is one writer, so what the
    detector read still holds when the transaction begins.
    """
    page_diff = detect(FeedSnapshots(connection, feed_id))
    if page_diff.is_idle:
        return Committed(page_diff, 0)
    at = to_micros(now)
    with transaction(connection):
        inserted = _write_snapshots(connection, feed_id, page_diff.writes)
        connection.executemany(
            "UPDATE records SET suspected_at = NULL, absences = 0, missing_at = NULL, dormant = 0 WHERE id = ?",
            ((row,) for row in page_diff.cleared),
        )
        _write_holds(connection, page_diff)
        queue_details(connection, feed_id, page_diff.pending, at)
        amend_details(connection, page_diff.amended)
        _write_quarantine(connection, feed_id, page_diff.bad, at)
        if page_diff.drift is not None:
            connection.execute(
                "UPDATE feeds SET drift = ?, drift_decision = ?, drift_at = ? WHERE id = ?",
                (msgspec.json.encode(sorted(page_diff.drift.paths)).decode(), page_diff.drift.decision, at, feed_id),
            )
        before = last_sequence(connection, feed_id)
        numbers = append_events(connection, feed_id, page_diff.changes, compose, now)
        events = last_sequence(connection, feed_id) - before if numbers else 0
        write_notes(connection, feed_id, page_diff.notes, numbers, via=via, at=at)
        statement = None if announce is None else announce(page_diff)
        if statement is not None:
            append_events(connection, feed_id, [statement], compose, now)
    return Committed(page_diff, events, inserted, statement)


def _write_snapshots(connection: Connection, feed_id: int, writes: Sequence[Write]) -> range:
    first = last_row(connection) + 1
    new = [write for write in writes if write.row is None]
    connection.executemany(
        "INSERT INTO records (id, feed, key, raw_hash, fingerprint, modified, revision) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (row, feed_id, write.key, write.raw_hash, write.fingerprint, write.modified, write.revision)
            for row, write in enumerate(new, start=first)
        ),
    )
    connection.executemany(
        "INSERT INTO bodies (record, body) VALUES (?, ?)",
        ((row, write.body) for row, write in enumerate(new, start=first)),
    )
    old = [write for write in writes if write.row is not None]
    connection.executemany(
        "UPDATE records SET raw_hash = ?, fingerprint = ?, modified = ?, revision = ?, superseded = ?, gone_at = NULL,"
        " suspected_at = NULL, absences = 0, missing_at = NULL WHERE id = ?",
        (
            (write.raw_hash, write.fingerprint, write.modified, write.revision, write.superseded, write.row)
            for write in old
        ),
    )
    connection.executemany(
        PUT_BODY,
        ((write.row, write.body) for write in old if write.body is not None),
    )
    return range(first, first + len(new))


def _write_holds(connection: Connection, page_diff: PageDiff) -> None:
    connection.executemany(_DELETE_HOLD, ((row,) for row in page_diff.released))
    connection.executemany("UPDATE records SET held = false WHERE id = ?", ((row,) for row in page_diff.released))
    connection.executemany(
        _PUT_HOLD,
        ((held.row, held.hold.fingerprint, held.hold.asked_at, held.body) for held in page_diff.holds),
    )
    connection.executemany("UPDATE records SET held = true WHERE id = ?", ((held.row,) for held in page_diff.holds))


def _write_quarantine(connection: Connection, feed_id: int, bad: Sequence[Bad], at: int) -> None:
    connection.executemany(
        "INSERT INTO quarantine (feed, digest, key, problem, body, first_at, last_at)"
        " VALUES (:feed, :digest, :key, :problem, :body, :at, :at)"
        " ON CONFLICT (feed, digest) DO UPDATE SET"
        " last_at = excluded.last_at, problem = excluded.problem, body = excluded.body",
        (
            {
                "feed": feed_id,
                "digest": each.digest,
                "key": each.key,
                "problem": each.problem,
                "body": each.raw[:_BAD_BODY_MOST],
                "at": at,
            }
            for each in bad
        ),
    )
    if bad:
        connection.execute(
            "DELETE FROM quarantine WHERE feed = :feed AND digest NOT IN"
            " (SELECT digest FROM quarantine WHERE feed = :feed ORDER BY last_at DESC LIMIT :most)",
            {"feed": feed_id, "most": _BAD_MOST},
        )


def last_row(connection: Connection) -> int:
    """Return the highest row in use."""
    (row,) = connection.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()
    return int(row)


def decide(
    connection: Connection,
    feed_id: int,
    detect: Callable[[bytes], Change] | None,
    compose: Compose,
    limit: int,
    *,
    now: datetime,
) -> int:
    """Publish records that the second pass left undecided, or take them for baseline; return how many."""
    with transaction(connection):
        rows = connection.execute(
            f"SELECT id, body FROM records {BY_ROW} JOIN bodies ON record = id"
            " WHERE feed = ? AND raw_hash = ? AND gone_at IS NULL ORDER BY id LIMIT ?",
            (feed_id, UNDECIDED, limit),
        ).fetchall()
        changes = [] if detect is None else [detect(body) for _, body in rows]
        revisions = [change.revision for change in changes] or [0] * len(rows)
        connection.executemany(
            "UPDATE records SET raw_hash = ?, revision = ? WHERE id = ?",
            (
                (blake2b(body, digest_size=DIGEST_SIZE).digest(), revision, row)
                for (row, body), revision in zip(rows, revisions, strict=True)
            ),
        )
        numbers = append_events(connection, feed_id, changes, compose, now)
        notes = [Note(change.key.text, Finding(change.kind.value), change=change) for change in changes]
        write_notes(connection, feed_id, notes, numbers, via=Via.PASS, at=to_micros(now))
    return len(rows)


def begin_emitting(connection: Connection, feed_id: int) -> None:
    """Note that a snapshot of each stored record is due."""
    connection.execute("UPDATE feeds SET emitted = 0 WHERE id = ? AND emitted IS NULL", (feed_id,))


def emit_snapshots(
    connection: Connection,
    feed_id: int,
    detect: Callable[[bytes, datetime | None], Change],
    compose: Compose,
    limit: int,
    *,
    now: datetime,
) -> int:
    """Publish the next due snapshots of records that nothing was published of; 0 when all are."""
    with transaction(connection):
        (emitted,) = connection.execute("SELECT emitted FROM feeds WHERE id = ?", (feed_id,)).fetchone()
        if emitted is None:
            return 0
        rows = connection.execute(
            f"SELECT id, body, modified FROM records {BY_ROW} JOIN bodies ON record = id"
            " WHERE feed = ? AND id > ? AND revision = 0 AND length(raw_hash) = 16 AND gone_at IS NULL AND dormant = 0"
            " ORDER BY id LIMIT ?",
            (feed_id, emitted, limit),
        ).fetchall()
        append_events(connection, feed_id, [detect(body, moment(at)) for _, body, at in rows], compose, now)
        if rows:
            connection.execute("UPDATE feeds SET emitted = ? WHERE id = ?", (rows[-1][0], feed_id))
    return len(rows)
