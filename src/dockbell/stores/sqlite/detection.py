"""Statements of detection: feeds, snapshots, runs and the writing of events, on one connection, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.judge import Judgement, Snapshots, Stored, Write
from dockbell.core.model import Change, Event, Feed, RunKind
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import Committed, FeedState, RunRecord

_KEYS_AT_ONCE: Final = 500
_SCAN_ROWS: Final = 20_000
_T = TypeVar("_T")


def _portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (values[start : start + _KEYS_AT_ONCE] for start in range(0, len(values), _KEYS_AT_ONCE))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done inside, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk has undone it already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def micros(moment: datetime | None) -> int | None:
    """Return a time as stored."""
    return None if moment is None else to_micros(moment)


def moment(stored: int | None) -> datetime | None:
    """Return a stored time."""
    return None if stored is None else from_micros(stored)


# Feeds ---------------------------------------------------------------------------------------------------------------


def open_feed(connection: sqlite3.Connection, feed: Feed) -> FeedState:
    """Return a feed's state, making the feed if it is new."""
    with transaction(connection):
        connection.execute(
            "INSERT INTO feeds (source, resource) VALUES (?, ?) ON CONFLICT DO NOTHING", (feed.source, feed.resource)
        )
    (state,) = load_feeds(connection, feed)
    return state


def load_feeds(connection: sqlite3.Connection, only: Feed | None = None) -> list[FeedState]:
    """Return the state of every feed, or of one."""
    where, values = ("", ()) if only is None else ("WHERE source = ? AND resource = ?", (only.source, only.resource))
    states = []
    for row in connection.execute(
        "SELECT id, source, resource, key, updated_at, created_at, first_asked_at, watermark, candidate, passes,"
        f" sequence, held, confirm_at, problem FROM feeds {where} ORDER BY id",
        values,
    ).fetchall():
        number, source, resource, key, updated_at, created_at, first, watermark, candidate, *rest = row
        passes, sequence, held, confirm_at, problem = rest
        states.append(
            FeedState(
                id=number,
                feed=Feed(source, resource),
                shape=None if key is None else Shape(tuple(msgspec.json.decode(key)), updated_at, created_at),
                first_asked_at=moment(first),
                progress=Progress(moment(watermark), moment(candidate)),
                passes=passes,
                sequence=sequence,
                held=held,
                confirm_at=moment(confirm_at),
                problem=problem,
                poll=load_run(connection, number, RunKind.POLL),
                full=load_run(connection, number, RunKind.PASS),
                failed=_load_failed(connection, number),
            )
        )
    return states


def begin_feed(connection: sqlite3.Connection, feed_id: int, first_asked_at: datetime) -> None:
    """Store S0, the service's time of a feed's first request; the watermark begins there."""
    connection.execute(
        "UPDATE feeds SET first_asked_at = :s0, watermark = :s0 WHERE id = :id AND first_asked_at IS NULL",
        {"s0": to_micros(first_asked_at), "id": feed_id},
    )


def save_shape(connection: sqlite3.Connection, feed_id: int, shape: Shape) -> None:
    """Store what was learned from the first page with records."""
    connection.execute(
        "UPDATE feeds SET key = ?, updated_at = ?, created_at = ? WHERE id = ?",
        (msgspec.json.encode(shape.key).decode(), shape.updated_at, shape.created_at, feed_id),
    )


def save_problem(connection: sqlite3.Connection, feed_id: int, problem: str) -> None:
    """Store what stops a feed, or the empty string when nothing does any more."""
    connection.execute("UPDATE feeds SET problem = ? WHERE id = ? AND problem <> ?", (problem, feed_id, problem))


# Runs ----------------------------------------------------------------------------------------------------------------


def load_run(connection: sqlite3.Connection, feed_id: int, kind: RunKind, *, complete: bool = True) -> RunRecord | None:
    """Return the last complete, or the last incomplete, run of a kind."""
    row = connection.execute(
        "SELECT asked_at, since, ended_at, pages, records, events, problem FROM runs"
        " WHERE feed = ? AND kind = ? AND complete = ?",
        (feed_id, kind, complete),
    ).fetchone()
    if row is None:
        return None
    asked_at, since, ended_at, pages, records, events, problem = row
    return RunRecord(kind, from_micros(asked_at), moment(since), from_micros(ended_at), pages, records, events, problem)


def _load_failed(connection: sqlite3.Connection, feed_id: int) -> RunRecord | None:
    """Return the last run of a feed, if it ended incomplete."""
    runs = (load_run(connection, feed_id, kind, complete=complete) for kind in RunKind for complete in (False, True))
    last = max((run for run in runs if run is not None), key=lambda run: run.ended_at, default=None)
    return last if last is not None and last.problem else None


def _save_run(connection: sqlite3.Connection, feed_id: int, run: RunRecord) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            feed_id,
            run.kind,
            not run.problem,
            to_micros(run.asked_at),
            micros(run.since),
            to_micros(run.ended_at),
            run.pages,
            run.records,
            run.events,
            run.problem,
        ),
    )


def close_run(connection: sqlite3.Connection, feed_id: int, run: RunRecord, progress: Progress | None) -> None:
    """Store how a run ended and, where it proves something about the watermark, what."""
    with transaction(connection):
        _save_run(connection, feed_id, run)
        if progress is not None:
            connection.execute(
                "UPDATE feeds SET watermark = ?, candidate = ? WHERE id = ?",
                (micros(progress.watermark), micros(progress.candidate), feed_id),
            )


def close_pass(
    connection: sqlite3.Connection,
    feed_id: int,
    run: RunRecord,
    *,
    suspected: Sequence[int],
    held: int,
    confirm_at: datetime | None,
) -> None:
    """Store the end of a complete pass: rows that it newly suspects, how many it holds, when to confirm."""
    with transaction(connection):
        last = load_run(connection, feed_id, RunKind.PASS)
        there_at = None if last is None else to_micros(last.asked_at)
        connection.executemany(
            "UPDATE records SET suspected_at = ?, there_at = ? WHERE id = ?",
            ((to_micros(run.ended_at), there_at, row) for row in suspected),
        )
        _save_run(connection, feed_id, run)
        connection.execute(
            "UPDATE feeds SET passes = passes + 1, held = ?, confirm_at = ? WHERE id = ?",
            (held, micros(confirm_at), feed_id),
        )


# Snapshots -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeedSnapshots:
    """Stored snapshots of one feed, as the judge reads them."""

    connection: sqlite3.Connection
    feed_id: int

    def find(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return what is stored of these keys."""
        found: dict[str, Stored] = {}
        for some in _portions(keys):
            for key, row, raw_hash, fingerprint, modified, revision, gone_at, suspected_at in self.connection.execute(
                "SELECT key, id, raw_hash, fingerprint, modified, revision, gone_at, suspected_at FROM records"
                f" WHERE feed = ? AND key IN ({', '.join('?' * len(some))})",
                (self.feed_id, *some),
            ):
                found[key] = Stored(
                    row, raw_hash, fingerprint, modified, revision, gone_at is not None, suspected_at is not None
                )
        return found

    def bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """Return the raw JSON of these rows."""
        return {
            row: body
            for some in _portions(rows)
            for row, body in self.connection.execute(
                f"SELECT record, body FROM bodies WHERE record IN ({', '.join('?' * len(some))})", some
            )
        }


def commit_page(
    connection: sqlite3.Connection,
    feed_id: int,
    judge: Callable[[Snapshots], Judgement],
    compose: Callable[[Change, int], Event],
    *,
    now: datetime,
) -> Committed:
    """Judge one page and store its snapshots and events together.

    Nothing is written, and no transaction opened, for a page that changes nothing; there is one writer, so what the
    judge read still holds when the transaction begins.
    """
    judgement = judge(FeedSnapshots(connection, feed_id))
    if not (judgement.writes or judgement.changes or judgement.cleared):
        return Committed(judgement, 0)
    with transaction(connection):
        _write_snapshots(connection, feed_id, judgement.writes)
        connection.executemany(
            "UPDATE records SET suspected_at = NULL WHERE id = ?", ((row,) for row in judgement.cleared)
        )
        _append_events(connection, feed_id, judgement.changes, compose, now)
    return Committed(judgement, len(judgement.changes))


def _write_snapshots(connection: sqlite3.Connection, feed_id: int, writes: Sequence[Write]) -> None:
    row = last_row(connection)
    new = []
    for write in writes:
        if write.row is None:
            row += 1
            new.append((row, write))
    connection.executemany(
        "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)",
        (
            (row, feed_id, write.key, write.raw_hash, write.fingerprint, write.modified, write.revision)
            for row, write in new
        ),
    )
    connection.executemany("INSERT INTO bodies VALUES (?, ?)", ((row, write.body) for row, write in new))
    old = [write for write in writes if write.row is not None]
    connection.executemany(
        "UPDATE records SET raw_hash = ?, fingerprint = ?, modified = ?, revision = ?, gone_at = NULL,"
        " suspected_at = NULL WHERE id = ?",
        ((write.raw_hash, write.fingerprint, write.modified, write.revision, write.row) for write in old),
    )
    connection.executemany("INSERT OR REPLACE INTO bodies VALUES (?, ?)", ((write.row, write.body) for write in old))


def last_row(connection: sqlite3.Connection) -> int:
    """Return the highest row in use."""
    (row,) = connection.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()
    return int(row)


def _append_events(
    connection: sqlite3.Connection,
    feed_id: int,
    changes: Sequence[Change],
    compose: Callable[[Change, int], Event],
    now: datetime,
) -> None:
    if not changes:
        return
    (sequence,) = connection.execute("SELECT sequence FROM feeds WHERE id = ?", (feed_id,)).fetchone()
    recorded_at = to_micros(now)
    connection.executemany(
        "INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                feed_id,
                event.sequence,
                event.key,
                event.id,
                event.type,
                event.change,
                event.revision,
                recorded_at,
                event.body,
            )
            for event in (compose(change, sequence + number) for number, change in enumerate(changes, start=1))
        ),
    )
    connection.execute("UPDATE feeds SET sequence = ? WHERE id = ?", (sequence + len(changes), feed_id))


# Absence -------------------------------------------------------------------------------------------------------------


def find_absent(connection: sqlite3.Connection, feed_id: int, seen: SeenRows) -> list[tuple[int, datetime | None]]:
    """Return the rows that ``seen`` does not hold, no tombstones, each with when it was first suspected."""
    absent = []
    for first in range(1, seen.last_row + 1, _SCAN_ROWS):
        # In the order of the rows and a part at a time: memory stays flat, and the other feeds are not kept waiting.
        for row, suspected_at in connection.execute(
            "SELECT id, suspected_at FROM records NOT INDEXED"
            " WHERE id BETWEEN ? AND ? AND feed = ? AND gone_at IS NULL",
            (first, min(first + _SCAN_ROWS - 1, seen.last_row), feed_id),
        ):
            if row not in seen:
                absent.append((row, moment(suspected_at)))
    return absent


def count_deleted(connection: sqlite3.Connection, feed_id: int, since: datetime) -> int:
    """Return how many of a feed's records were deleted since then."""
    (count,) = connection.execute(
        "SELECT count(*) FROM records WHERE feed = ? AND gone_at >= ?", (feed_id, to_micros(since))
    ).fetchone()
    return int(count)


def bury(
    connection: sqlite3.Connection,
    feed_id: int,
    rows: Sequence[int],
    judge: Callable[[bytes, int, datetime | None], Change],
    compose: Callable[[Change, int], Event],
    *,
    now: datetime,
) -> int:
    """Turn rows into tombstones with an event each; those that were seen again meanwhile are left alone."""
    with transaction(connection):
        changes = []
        for row in rows:
            found = connection.execute(
                "SELECT body, revision, there_at FROM records JOIN bodies ON record = id"
                " WHERE id = ? AND gone_at IS NULL AND suspected_at IS NOT NULL",
                (row,),
            ).fetchone()
            if found is None:
                continue
            body, revision, there_at = found
            change = judge(body, revision, moment(there_at))
            changes.append(change)
            connection.execute(
                "UPDATE records SET gone_at = ?, suspected_at = NULL, revision = ? WHERE id = ?",
                (to_micros(now), change.revision, row),
            )
        _append_events(connection, feed_id, changes, compose, now)
    return len(changes)
