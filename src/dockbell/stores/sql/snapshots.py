"""Statements about snapshots: what is stored of records, and the commit of a page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from dockbell.core.comparing.page_diff import (
    UNDECIDED,
    Bad,
    Finding,
    Hold,
    Note,
    PageDiff,
    Snapshots,
    Stored,
    Write,
)
from dockbell.core.model import DIGEST_SIZE, Change, Statement, Via
from dockbell.core.moment import to_micros
from dockbell.ports import Committed, Compose
from dockbell.stores.sql.connection import Connection, marks, moment, portions, transaction, upsert
from dockbell.stores.sql.details import amend_details, queue_details
from dockbell.stores.sql.lease import Lease, move_feed, update_feed
from dockbell.stores.sql.outbox import PUT_BODY, append_events, write_events, write_notes

_BAD_BODY_MOST: Final = 65_536
_BAD_MOST: Final = 1000
"""Records in quarantine per feed: those without a key may look new each time."""
_KEY: Final = itemgetter(-1)
_STORED: Final[Callable[[Any], Stored]] = partial(tuple.__new__, Stored)
"""As ``Stored._make``, in a third of the time."""
_PUT_HOLD: Final = upsert("holds", ["feed", "row"], "fingerprint", "asked_at", "body")
_DELETE_HOLD: Final = "DELETE FROM holds WHERE feed = ? AND row = ?"


class Last(NamedTuple):
    """The last numbers of a feed that are given away."""

    row: int
    sequence: int


class StoredPage(Snapshots, Protocol):
    """Stored snapshots of one feed, and what the commit of a page must know beside them."""

    def last(self) -> Last:
        """Return the last numbers of the feed; only this process gives new ones away."""


class FeedSnapshots(msgspec.Struct, frozen=True):
    """Stored snapshots of one feed, as the change detector reads them: each question is a statement."""

    connection: Connection
    feed_id: int

    def last(self) -> Last:
        numbers = self.connection.execute("SELECT last_row, sequence FROM feeds WHERE id = ?", (self.feed_id,))
        return Last(*numbers.fetchone())

    def find(
        self,
        hashes: Mapping[str, bytes | None],
        bad: Sequence[bytes] = (),  # noqa: ARG002  # a statement costs little: what is not needed is not read
    ) -> Mapping[str, Stored]:
        found: dict[str, Stored] = {}
        for some in portions(list(hashes)):
            rows = self.connection.execute(
                "SELECT row, raw_hash, fingerprint, modified, revision, gone_at,"
                " suspected_at IS NOT NULL OR ignored_until_seen <> 0, superseded, held, key"
                f" FROM records WHERE feed = ? AND key IN ({marks(some)})",
                (self.feed_id, *some),
            ).fetchall()
            found.update(zip(map(_KEY, rows), map(_STORED, rows), strict=True))
        return found

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        return read_bodies(self.connection, self.feed_id, rows)

    def holds(self, rows: Sequence[int]) -> Mapping[int, Hold]:
        return {
            row: Hold(fingerprint, asked_at)
            for some in portions(rows)
            for row, fingerprint, asked_at in self.connection.execute(
                f"SELECT row, fingerprint, asked_at FROM holds WHERE feed = ? AND row IN ({marks(some)})",
                (self.feed_id, *some),
            )
        }

    def quarantined(self, digests: Sequence[bytes]) -> Collection[bytes]:
        return {
            digest
            for some in portions(digests)
            for (digest,) in self.connection.execute(
                f"SELECT digest FROM quarantine WHERE feed = ? AND digest IN ({marks(some)})", (self.feed_id, *some)
            )
        }


def read_bodies(connection: Connection, feed_id: int, rows: Sequence[int]) -> Mapping[int, bytes]:
    return {
        row: body
        for some in portions(rows)
        for row, body in connection.execute(
            f"SELECT row, body FROM bodies WHERE feed = ? AND row IN ({marks(some)})", (feed_id, *some)
        )
    }


class PageCommit:
    """The commit of one page: it is compared with the stored records, and its snapshots and events are stored together.

    Nothing is to be written for a page that changes nothing. There is one writer, so what the detector read still holds
    when the transaction begins.

    Args:
        lease: Of the feed.
        look: Returns how the detector looks at what is stored.
        detect: Compares the page with that.
        compose: Composes events.
        via: How the page was read.
        find_statement: Returns what is to be stated with the page.
        now: The time by our clock.
    """

    def __init__(
        self,
        lease: Lease,
        look: Callable[[Connection, int], StoredPage],
        detect: Callable[[Snapshots], PageDiff],
        compose: Compose,
        *,
        via: Via,
        find_statement: Callable[[PageDiff], Statement | None] | None = None,
        now: datetime,
    ) -> None:
        self.lease = lease
        self._look = look
        self._detect = detect
        self._compose = compose
        self._via = via
        self._find_statement = find_statement
        self._now = now

    def prepare(self, connection: Connection) -> Callable[[Connection], Committed] | Committed:
        """Compare the page, before the transaction; return what writes it inside, or what it comes to without that."""
        stored = self._look(connection, self.lease.id)
        page_diff = self._detect(stored)
        return Committed(page_diff, 0) if page_diff.is_idle else partial(self._write, stored, page_diff)

    def _write(self, stored: StoredPage, page_diff: PageDiff, connection: Connection) -> Committed:
        lease, now, at = self.lease, self._now, to_micros(self._now)
        last = stored.last()
        inserted = _write_snapshots(connection, lease.id, page_diff.writes, last.row + 1)
        connection.executemany(
            "UPDATE records SET suspected_at = NULL, absences = 0, missing_at = NULL, ignored_until_seen = 0"
            " WHERE feed = ? AND row = ?",
            ((lease.id, row) for row in page_diff.cleared),
        )
        _write_holds(connection, lease.id, page_diff)
        queue_details(connection, lease.id, page_diff.pending, at)
        amend_details(connection, lease.id, page_diff.amended)
        _write_quarantine(connection, lease.id, page_diff.bad, at)
        appended = write_events(connection, lease.id, page_diff.changes, self._compose, now, after=last.sequence)
        write_notes(connection, lease.id, page_diff.notes, appended.numbers, via=self._via, at=at)
        end, statement = appended.end, None if self._find_statement is None else self._find_statement(page_diff)
        if statement is not None:
            end = write_events(connection, lease.id, [statement], self._compose, now, after=end).end
        _move_on(connection, lease, page_diff, at, before=last, after=Last(last.row + len(inserted), end))
        return Committed(page_diff, appended.events, inserted, statement, end)


def _move_on(connection: Connection, lease: Lease, page_diff: PageDiff, at: int, *, before: Last, after: Last) -> None:
    """Note which numbers are given away, and the drift that a page shows, if this process holds the feed."""
    changes = "last_row = ?, sequence = ?"
    values: list[Any] = [*after]
    if page_diff.drift is not None:
        changes += ", drift = ?, drift_decision = ?, drift_at = ?"
        paths = msgspec.json.encode(sorted(page_diff.drift.paths)).decode()
        values += paths, page_diff.drift.decision, at
    move_feed(connection, lease, before.sequence, changes, values)


def _write_snapshots(connection: Connection, feed_id: int, writes: Sequence[Write], first: int) -> range:
    """Write what is stored of records; return the rows of the new ones, which begin with ``first``."""
    new = [write for write in writes if write.row is None]
    connection.executemany(
        "INSERT INTO records (row, feed, key, raw_hash, fingerprint, modified, revision) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (row, feed_id, write.key, write.raw_hash, write.fingerprint, write.modified, write.revision)
            for row, write in enumerate(new, start=first)
        ),
    )
    connection.executemany(
        "INSERT INTO bodies (feed, row, body) VALUES (?, ?, ?)",
        ((feed_id, row, write.body) for row, write in enumerate(new, start=first)),
    )
    old = [write for write in writes if write.row is not None]
    connection.executemany(
        "UPDATE records SET raw_hash = ?, fingerprint = ?, modified = ?, revision = ?, superseded = ?, gone_at = NULL,"
        " suspected_at = NULL, absences = 0, missing_at = NULL WHERE feed = ? AND row = ?",
        (
            (write.raw_hash, write.fingerprint, write.modified, write.revision, write.superseded, feed_id, write.row)
            for write in old
        ),
    )
    connection.executemany(PUT_BODY, ((feed_id, write.row, write.body) for write in old if write.body is not None))
    return range(first, first + len(new))


def _write_holds(connection: Connection, feed_id: int, page_diff: PageDiff) -> None:
    released = [(feed_id, row) for row in page_diff.released]
    connection.executemany(_DELETE_HOLD, released)
    connection.executemany("UPDATE records SET held = false WHERE feed = ? AND row = ?", released)
    connection.executemany(
        _PUT_HOLD,
        ((feed_id, held.row, held.hold.fingerprint, held.hold.asked_at, held.body) for held in page_diff.holds),
    )
    connection.executemany(
        "UPDATE records SET held = true WHERE feed = ? AND row = ?", ((feed_id, held.row) for held in page_diff.holds)
    )


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


def last_row(connection: Connection, feed_id: int) -> int:
    (row,) = connection.execute("SELECT last_row FROM feeds WHERE id = ?", (feed_id,)).fetchone()
    return int(row)


def decide(
    connection: Connection,
    lease: Lease,
    detect: Callable[[bytes], Change] | None,
    compose: Compose,
    limit: int,
    *,
    now: datetime,
) -> int:
    with transaction(connection):
        rows = connection.execute(
            "SELECT row, body FROM records JOIN bodies USING (feed, row)"
            " WHERE feed = ? AND raw_hash = ? AND gone_at IS NULL ORDER BY row LIMIT ?",
            (lease.id, UNDECIDED, limit),
        ).fetchall()
        changes = [] if detect is None else [detect(body) for _, body in rows]
        revisions = [change.revision for change in changes] or [0] * len(rows)
        connection.executemany(
            "UPDATE records SET raw_hash = ?, revision = ? WHERE feed = ? AND row = ?",
            (
                (blake2b(body, digest_size=DIGEST_SIZE).digest(), revision, lease.id, row)
                for (row, body), revision in zip(rows, revisions, strict=True)
            ),
        )
        numbers = append_events(connection, lease, changes, compose, now).numbers
        notes = [Note(change.key.text, Finding(change.kind.value), change=change) for change in changes]
        write_notes(connection, lease.id, notes, numbers, via=Via.PASS, at=to_micros(now))
    return len(rows)


def begin_emitting(connection: Connection, lease: Lease) -> None:
    update_feed(connection, lease, "emitted = 0", only="AND emitted IS NULL")


def emit_snapshots(
    connection: Connection,
    lease: Lease,
    detect: Callable[[bytes, datetime | None], Change],
    compose: Compose,
    limit: int,
    *,
    now: datetime,
) -> int:
    with transaction(connection):
        (emitted,) = connection.execute("SELECT emitted FROM feeds WHERE id = ?", (lease.id,)).fetchone()
        if emitted is None:
            return 0
        rows = connection.execute(
            "SELECT row, body, modified FROM records JOIN bodies USING (feed, row) WHERE feed = ? AND row > ?"
            " AND revision = 0 AND length(raw_hash) = 16 AND gone_at IS NULL AND ignored_until_seen = 0"
            " ORDER BY row LIMIT ?",
            (lease.id, emitted, limit),
        ).fetchall()
        append_events(connection, lease, [detect(body, moment(at)) for _, body, at in rows], compose, now)
        if rows:
            update_feed(connection, lease, "emitted = ?", [rows[-1][0]])
    return len(rows)
