"""Statements about records that passes did not show, and about their deletion."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final

from dockbell.core.comparing.list_digest import digest_record, format_digest
from dockbell.core.comparing.page_diff import PURGED, Finding, Note
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Change, RunKind, Statement, Via
from dockbell.core.moment import from_micros, micros, to_micros
from dockbell.core.reading.lateness import Lateness
from dockbell.ports import Absentees, Compose, RunRecord
from dockbell.stores.sql.connection import Connection, marks, moment, portions, transaction
from dockbell.stores.sql.dialect import THEN_JOIN
from dockbell.stores.sql.feeds import save_lateness, state
from dockbell.stores.sql.lease import Lease, update_feed
from dockbell.stores.sql.outbox import append_events, write_notes
from dockbell.stores.sql.runs import load_run, save_run

_SCAN_ROWS: Final = 5000
_ROW: Final = itemgetter(0)
_IGNORED: Final = itemgetter(1)
_UNLISTED: Final = 2
"""Marks, in ``ignored_until_seen``, a record that was found when it was asked for, though no list showed it."""
_FOUND: Final = 3
"""The same, of one that a second pass has still to miss: until then it stays suspected."""
_NEVER: Final = -1
_IS_UNCLOSED: Final = f"(coalesce(there_at, {_NEVER}) = ? AND coalesce(suspected_at, {_NEVER}) <> ?)"
"""Whether the pass that suspected a record came after the last one that was closed: the process died before its end."""
_NOTED_MOST: Final = 1000
"""Suspicions of one pass that are noted each; of more, the log of the pass tells."""


def find_absent(connection: Connection, feed_id: int, seen: SeenRows) -> Absentees:
    """Return the rows that ``seen`` does not hold, but for tombstones and records that absence checks ignore.

    Suspicions of a pass that was not closed, because the process died, do not count.
    """
    absent: list[int] = []
    total = stored = unlisted = 0
    (last,) = connection.execute("SELECT last_row FROM feeds WHERE id = ?", (feed_id,)).fetchone()
    for first in range(1, last + 1, _SCAN_ROWS):
        # In the order of the rows and a part at a time: memory stays flat, and other readers are not kept waiting.
        found = connection.execute(
            "SELECT row, ignored_until_seen, key, fingerprint FROM records"
            " WHERE feed = ? AND row BETWEEN ? AND ? AND gone_at IS NULL ORDER BY row",
            (feed_id, first, first + _SCAN_ROWS - 1),
        ).fetchall()
        there = found
        if any(map(_IGNORED, found)):  # seldom
            unlisted += sum(ignored in (_UNLISTED, _FOUND) for _, ignored, _, _ in found)
            there = [each for each in found if each[1] in (0, _FOUND)]
        rows = list(map(_ROW, there))
        stored += bisect_right(rows, seen.last_row)
        if unseen := set(seen.find_unseen(rows)):
            absent += sorted(unseen)
            there = [each for each in there if each[0] not in unseen]
        total += sum(digest_record(key, fingerprint) for _, _, key, fingerprint in there)
    rows_absent, missing = _look_closer(connection, feed_id, absent)
    return Absentees(rows_absent, format_digest(total), stored, missing, unlisted > 0)


def _look_closer(
    connection: Connection, feed_id: int, absent: Sequence[int]
) -> tuple[list[tuple[int, datetime | None, int]], dict[int, datetime]]:
    """Return what is known of absent rows, as :class:`Absentees` has it."""
    unclosed = _find_unclosed(connection, feed_id)
    found = [
        each
        for some in portions(absent)
        for each in connection.execute(
            f"SELECT row, CASE WHEN NOT {_IS_UNCLOSED} THEN suspected_at END, absences, missing_at FROM records"
            f" WHERE feed = ? AND row IN ({marks(some)}) ORDER BY row",
            (*unclosed, feed_id, *some),
        )
    ]
    rows = [(row, moment(suspected_at), absences) for row, suspected_at, absences, _ in found]
    return rows, {row: from_micros(missing_at) for row, _, _, missing_at in found if missing_at is not None}


def find_told_apart(
    connection: Connection, feed_id: int, rows: Sequence[int], *, keyless: int, met_since: datetime, offset: timedelta
) -> list[int]:
    (first_at,) = connection.execute(
        "SELECT max(first_at) FROM quarantine WHERE feed = ? AND key = '' AND last_at >= ?",
        (feed_id, to_micros(met_since)),
    ).fetchone()
    return [
        row
        for some in portions(rows)
        for (row,) in connection.execute(
            "SELECT row FROM records WHERE feed = ? AND there_at > ?"
            " AND EXISTS (SELECT 1 FROM runs WHERE runs.feed = records.feed AND kind = ? AND complete = true"
            " AND asked_at = there_at AND coalesce(CAST(tally ->> 'keyless' AS INTEGER), 0) >= ?)"
            f" AND row IN ({marks(some)})",
            (feed_id, (first_at or 0) - offset // timedelta(microseconds=1), RunKind.PASS, keyless, *some),
        )
    ]


def count_deleted(connection: Connection, feed_id: int, since: datetime) -> int:
    (count,) = connection.execute(
        "SELECT count(*) FROM records WHERE feed = ? AND gone_at >= ? AND fingerprint <> ?"
        " AND gone_at > (SELECT coalesce(approved_at, 0) FROM feeds WHERE id = ?)",
        (feed_id, to_micros(since), PURGED, feed_id),
    ).fetchone()
    return int(count)


def suspect(connection: Connection, lease: Lease, rows: Sequence[int], at: datetime, now: datetime) -> None:
    if not rows:
        return
    with transaction(connection):
        update_feed(connection, lease)
        unclosed = _find_unclosed(connection, lease.id)
        there_at = None if unclosed[0] == _NEVER else unclosed[0]
        new = [
            row
            for some in portions(rows)
            for row, is_new in connection.execute(
                f"SELECT row, suspected_at IS NULL OR {_IS_UNCLOSED} FROM records"
                f" WHERE feed = ? AND row IN ({marks(some)})",
                (*unclosed, lease.id, *some),
            ).fetchall()
            if is_new
        ]
        connection.executemany(
            "UPDATE records SET suspected_at = ?, there_at = ?, absences = 0 WHERE feed = ? AND row = ?",
            ((to_micros(at), there_at, lease.id, row) for row in new),
        )
        connection.executemany(
            "UPDATE records SET absences = absences + 1 WHERE feed = ? AND row = ?", ((lease.id, row) for row in rows)
        )
        _note_rows(connection, lease.id, new[:_NOTED_MOST], Finding.SUSPECTED, to_micros(now))


def _find_unclosed(connection: Connection, feed_id: int) -> tuple[int, int]:
    """Return the values for ``_IS_UNCLOSED``: when the last pass that was closed was asked for, and when it ended."""
    last = load_run(connection, feed_id, RunKind.PASS)
    return (_NEVER, _NEVER) if last is None else (to_micros(last.asked_at), to_micros(last.ended_at))


def end_baseline(
    connection: Connection, lease: Lease, *, proven: bool, newest: datetime | None, boundary: datetime | None
) -> None:
    changes = (
        "baselines = baselines + CASE WHEN passes = 0 OR rebaselining THEN 1 ELSE 0 END,"
        " passes = passes + 1, rebaselining = false, proven = proven OR ?, newest = coalesce(newest, ?),"
        " boundary = coalesce(boundary, ?), emitted = CASE WHEN NOT ? THEN emitted END"
    )
    update_feed(connection, lease, changes, (proven, micros(newest), micros(boundary), proven))


def close_pass(
    connection: Connection,
    lease: Lease,
    run: RunRecord,
    *,
    held: int,
    confirm_at: datetime | None,
    proven: bool,
    newest: datetime | None,
    boundary: datetime | None,
    is_first: bool,
    is_approved: bool,
    lateness: Lateness | None,
    statements: Sequence[Statement],
    compose: Compose,
    drift_before: datetime | None,
    now: datetime,
) -> None:
    with transaction(connection):
        save_run(connection, lease.id, run)
        end_baseline(connection, lease, proven=proven, newest=newest, boundary=boundary)
        if is_first:
            update_feed(connection, lease, "passes = 1, baselines = baselines + 1")
        ending = (held, micros(confirm_at), run.tally.drifted)
        update_feed(connection, lease, "suspended = ?, confirm_at = ?, drifted = ?", ending)
        if is_approved:
            update_feed(connection, lease, "approved_at = ?", [to_micros(now)])
        if lateness is not None:
            save_lateness(connection, lease, lateness)
        # A whole pass that held nothing for it ends a drift: it is gone, or the operator has decided. Of one that polls
        # found while it went on, its first pages may say nothing.
        connection.execute(
            "UPDATE feeds SET drift = NULL, drift_decision = NULL, drift_at = NULL"
            " WHERE id = ? AND drifted = 0 AND drift_at <= ?",
            (lease.id, micros(drift_before)),
        )
        connection.execute("DELETE FROM checkpoints WHERE feed = ?", (lease.id,))
        _drop_old_holds(connection, lease.id, run)
        # What a complete pass has not met is not there any more.
        connection.execute(
            "DELETE FROM quarantine WHERE feed = ? AND (? = 0 OR last_at < ?)",
            (lease.id, run.tally.bad, micros(drift_before)),
        )
        state(connection, lease, statements, compose, now)


_IS_OLD: Final = "(gone_at IS NOT NULL OR suspected_at IS NOT NULL) AND asked_at < ?"
"""A held reading from before a complete pass that has shown nothing of its record: it has not lasted."""


def count_holds(connection: Connection, feed_id: int, asked_at: datetime) -> int:
    (count,) = connection.execute(
        f"SELECT count(*) FROM holds {THEN_JOIN} records USING (feed, row) WHERE feed = ? AND NOT ({_IS_OLD})",
        (feed_id, to_micros(asked_at)),
    ).fetchone()
    return int(count)


def _drop_old_holds(connection: Connection, feed_id: int, run: RunRecord) -> None:
    """Forget held readings that have not lasted."""
    old = connection.execute(
        f"SELECT feed, row FROM holds {THEN_JOIN} records USING (feed, row) WHERE feed = ? AND {_IS_OLD}",
        (feed_id, to_micros(run.asked_at)),
    ).fetchall()
    connection.executemany("DELETE FROM holds WHERE feed = ? AND row = ?", old)
    connection.executemany("UPDATE records SET held = false WHERE feed = ? AND row = ?", old)


def _note_rows(connection: Connection, feed_id: int, rows: Sequence[int], finding: Finding, at: int) -> None:
    notes = [
        Note(key, finding)
        for some in portions(rows)
        for (key,) in connection.execute(
            f"SELECT key FROM records WHERE feed = ? AND row IN ({marks(some)}) ORDER BY row", (feed_id, *some)
        ).fetchall()
    ]
    write_notes(connection, feed_id, notes, {}, via=Via.PASS, at=at)


def keep(
    connection: Connection,
    lease: Lease,
    rows: Sequence[int],
    finding: Finding,
    *,
    ignored_until_seen: bool,
    now: datetime,
) -> None:
    mark = _UNLISTED if ignored_until_seen and finding is Finding.THERE else int(ignored_until_seen)
    with transaction(connection):
        connection.executemany(
            "UPDATE records SET suspected_at = NULL, absences = 0, missing_at = NULL, ignored_until_seen = ?"
            " WHERE feed = ? AND row = ?",
            ((mark, lease.id, row) for row in rows),
        )
        _note_rows(connection, lease.id, rows[:_NOTED_MOST], finding, to_micros(now))
        kept = finding is Finding.KEPT
        update_feed(connection, lease, "suspended = 0, confirm_at = NULL" if kept else "token = token")


def find_suspected(connection: Connection, feed_id: int) -> list[int]:
    return [
        row
        for (row,) in connection.execute(
            "SELECT row FROM records WHERE feed = ? AND suspected_at IS NOT NULL AND gone_at IS NULL ORDER BY row",
            (feed_id,),
        )
    ]


def note_missing(connection: Connection, lease: Lease, rows: Sequence[int], now: datetime) -> None:
    with transaction(connection):
        update_feed(connection, lease)
        connection.executemany(
            "UPDATE records SET missing_at = ?"
            " WHERE feed = ? AND row = ? AND suspected_at IS NOT NULL AND missing_at IS NULL",
            ((to_micros(now), lease.id, row) for row in rows),
        )


def note_found(connection: Connection, lease: Lease, rows: Sequence[int]) -> None:
    with transaction(connection):
        update_feed(connection, lease)
        connection.executemany(
            "UPDATE records SET ignored_until_seen = ?, missing_at = NULL"
            " WHERE feed = ? AND row = ? AND suspected_at IS NOT NULL",
            ((_FOUND, lease.id, row) for row in rows),
        )


def find_missing(connection: Connection, feed_id: int, rows: Sequence[int]) -> dict[int, datetime | None]:
    return {
        row: moment(missing_at)
        for some in portions(rows)
        for row, missing_at in connection.execute(
            "SELECT row, missing_at FROM records WHERE suspected_at IS NOT NULL AND gone_at IS NULL"
            f" AND feed = ? AND row IN ({marks(some)})",
            (feed_id, *some),
        )
    }


def end_suspicion(connection: Connection, lease: Lease) -> bool:
    if find_suspected(connection, lease.id):
        return False
    update_feed(connection, lease, "confirm_at = NULL")
    return True


def delete_records(
    connection: Connection,
    lease: Lease,
    rows: Sequence[int],
    detect: Callable[[bytes, int, datetime | None], Change],
    compose: Compose,
    *,
    now: datetime,
) -> int:
    at = to_micros(now)
    with transaction(connection):
        changes = []
        for row in rows:
            found = connection.execute(
                "SELECT body, revision, there_at FROM records JOIN bodies USING (feed, row)"
                " WHERE feed = :feed AND row = :row AND gone_at IS NULL AND suspected_at IS NOT NULL"
                # its last change comes first
                " AND NOT EXISTS (SELECT 1 FROM details WHERE feed = :feed AND row = :row)",
                {"feed": lease.id, "row": row},
            ).fetchone()
            if found is None:
                continue
            body, revision, there_at = found
            change = detect(body, revision, moment(there_at))
            changes.append(change)
            connection.execute(
                "UPDATE records SET gone_at = ?, suspected_at = NULL, absences = 0, missing_at = NULL, revision = ?,"
                " held = false WHERE feed = ? AND row = ?",
                (at, change.revision, lease.id, row),
            )
            connection.execute("DELETE FROM holds WHERE feed = ? AND row = ?", (lease.id, row))
        numbers = append_events(connection, lease, changes, compose, now).numbers
        notes = [Note(change.key.text, Finding.DELETED, change=change) for change in changes]
        write_notes(connection, lease.id, notes, numbers, via=Via.PASS, at=at)
    return len(changes)
