"""Statements about feeds: their state, and how it changes at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.model import JSON, Feed, Statement
from dockbell.core.moment import micros, to_micros
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape, keeps_records, keeps_shape
from dockbell.core.reading.window import Progress
from dockbell.ports import Compose, FeedState, RunRecord
from dockbell.stores.sql.connection import Connection, marks, moment, transaction
from dockbell.stores.sql.lease import Lease, find_lease, take_lease, update_feed
from dockbell.stores.sql.outbox import append_events
from dockbell.stores.sql.runs import LAST, WITH_LAST, LastRuns, is_failing, load_last, save_run


def add_feeds(connection: Connection, added: Sequence[Feed]) -> None:
    """Make the feeds among these that are new: all of them or none."""
    with transaction(connection):
        _add_feeds(connection, added)


def open_feed(connection: Connection, feed: Feed) -> Lease:
    """Take a feed, making it if it is new."""
    with transaction(connection):
        lease = take_lease(connection, feed)
        if lease is None:
            _add_feeds(connection, [feed])
            lease = take_lease(connection, feed)
        assert lease is not None
        return lease


def join_feed(connection: Connection, feed: Feed) -> Lease:
    """Return the lease of a feed that several processes write, making it if it is new."""
    with transaction(connection):
        _add_feeds(connection, [feed])
        lease = find_lease(connection, feed)
        assert lease is not None
        return replace(lease, is_taken=True)


def _add_feeds(connection: Connection, added: Sequence[Feed]) -> None:
    connection.executemany(
        "INSERT INTO feeds (source, resource, blind) SELECT ?, ?, nullif(reason, '') FROM life"
        " WHERE true ON CONFLICT (source, resource) DO NOTHING",
        [(feed.source, feed.resource) for feed in added],
    )


_COLUMNS: Final = (
    "id, source, resource, key, updated_at, created_at, read_settings, proven, rebaselining, first_asked_at, boundary,"
    " watermark, candidate, newest, tick, tick_reads, lateness, listing_profile, plan, signal, passes, last_row,"
    " sequence, suspended, drift, drift_decision, drift_at, drifted, emitted, blind, confirm_at, problem, dropped,"
    " cleaning"
)
_STATE: Final = {
    **{name: f"feeds.{name}" for name in _COLUMNS.split(", ")},
    "holds": "(SELECT count(*) FROM holds WHERE feed = feeds.id)",
    "quarantined": "(SELECT count(*) FROM quarantine WHERE feed = feeds.id)",
    **LAST,
}
"""What is read of a feed, by name: to ask the database for the names takes longer than the rest of the statement."""
_SELECT_STATE: Final = f"SELECT {', '.join(_STATE.values())} FROM feeds {WITH_LAST}"


def load_feeds(connection: Connection, only: Feed | None = None) -> list[FeedState]:
    where, values = ("", ()) if only is None else ("WHERE source = ? AND resource = ?", (only.source, only.resource))
    found = connection.execute(f"{_SELECT_STATE} {where} ORDER BY feeds.id", values)
    return _read_states(connection, _name_columns(found.fetchall()))


def ask_for_states(
    connection: Connection, ids: Sequence[int], *, is_lazy: bool
) -> Callable[[], Mapping[int, FeedState]]:
    """Ask for the states of feeds inside a transaction; return what reads the answer, once that is committed.

    Not among them are feeds whose last run of a kind was incomplete: to read their states takes another statement.
    With ``is_lazy`` the database answers at the commit. Otherwise the answer is there at once, and is taken at once:
    SQLite does not move its log into the store while an answer is only half read.
    """
    found = connection.execute(f"{_SELECT_STATE} WHERE feeds.id IN ({marks(ids)})", ids)
    fetch = found.fetchall if is_lazy else partial(list, found.fetchall())

    def read() -> Mapping[int, FeedState]:
        rows = [row for row in _name_columns(fetch()) if not is_failing(row)]
        return {state.id: state for state in _read_states(connection, rows)}

    return read


def _name_columns(rows: Sequence[Any]) -> list[Mapping[str, Any]]:
    return [dict(zip(_STATE, row, strict=True)) for row in rows]


def _read_states(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[FeedState]:
    last = load_last(connection, rows)
    return [_read_state(row, last[row["id"]]) for row in rows]


def _read_state(row: Mapping[str, Any], last: LastRuns) -> FeedState:
    key, drift = row["key"], row["drift"]
    cleaning = {"drop": ()} if row["cleaning"] is None else msgspec.json.decode(row["cleaning"])
    return FeedState(
        id=row["id"],
        feed=Feed(row["source"], row["resource"]),
        shape=None if key is None else Shape(tuple(msgspec.json.decode(key)), row["updated_at"], row["created_at"]),
        read_settings=None if row["read_settings"] is None else msgspec.json.decode(row["read_settings"]),
        proven=bool(row["proven"]),
        rebaselining=bool(row["rebaselining"]),
        first_asked_at=moment(row["first_asked_at"]),
        boundary=moment(row["boundary"]),
        progress=Progress(
            moment(row["watermark"]),
            moment(row["candidate"]),
            moment(row["newest"]),
            moment(row["tick"]),
            row["tick_reads"],
        ),
        lateness=Lateness.from_json(row["lateness"]) if row["lateness"] else Lateness(),
        listing_profile=row["listing_profile"],
        plan=row["plan"],
        signal=row["signal"],
        passes=row["passes"],
        last_row=row["last_row"],
        sequence=row["sequence"],
        held=row["suspended"],
        holds=row["holds"],
        quarantined=row["quarantined"],
        drift=None if drift is None else Drift(frozenset(msgspec.json.decode(drift)), Decision(row["drift_decision"])),
        drift_at=moment(row["drift_at"]),
        drifted=row["drifted"],
        emitted=row["emitted"],
        blind=row["blind"] or "",
        confirm_at=moment(row["confirm_at"]),
        problem=row["problem"],
        poll=last.poll,
        full=last.full,
        trailing=last.trailing,
        failing=last.failing,
        dropped=(dropped := tuple(msgspec.json.decode(row["dropped"]))),
        cleaning=tuple(place for place in cleaning["drop"] if place not in dropped),
    )


def begin_feed(connection: Connection, lease: Lease, first_asked_at: datetime, boundary: datetime | None) -> None:
    changes = "first_asked_at = ?, watermark = ?, boundary = ?, newest = ?"
    values = [to_micros(first_asked_at)] * 2 + [micros(boundary)] * 2
    update_feed(connection, lease, changes, values, "AND first_asked_at IS NULL")


def save_read_settings(
    connection: Connection,
    lease: Lease,
    read_settings: Mapping[str, JSON],
    *,
    rebaseline: Statement | None,
    compose: Compose | None,
    now: datetime,
) -> None:
    """Store how a feed is read; with a statement, what is stored was read differently, and that is stated.

    Where the same records are read otherwise, only differences in content are silent until a pass has ended: what polls
    and passes have proven of them stays true, and a record that is new, gone or modified meanwhile is reported.
    """
    with transaction(connection):
        update_feed(connection, lease, "read_settings = ?", [msgspec.json.encode(read_settings).decode()])
        if rebaseline is not None and compose is not None:
            parts = rebaseline.details["parts"]
            update_feed(connection, lease, "rebaselining = true")
            if not keeps_records(parts):
                _begin_anew(connection, lease, parts)
            connection.execute("DELETE FROM checkpoints WHERE feed = ?", (lease.id,))
            append_events(connection, lease, [rebaseline], compose, now)


def _begin_anew(connection: Connection, lease: Lease, parts: Sequence[str]) -> None:
    """Forget all of a feed but its records, revisions and numbers, for other records may be read from now on.

    Absence checks ignore the stored records until they are seen again: they may have other keys now, or no longer
    match the query. A key that was proven stays so where it tells the same records apart: were nothing published until
    a pass has proven it again, what changed while dockbell was down would be lost.
    """
    update_feed(
        connection,
        lease,
        "first_asked_at = NULL, boundary = NULL, watermark = NULL, candidate = NULL, newest = NULL,"
        " tick = NULL, tick_reads = 0, passes = 0, suspended = 0, confirm_at = NULL, drift = NULL,"
        " drift_decision = NULL, drift_at = NULL, drifted = 0, listing_profile = '', signal = ''",
    )
    if not keeps_shape(parts):
        update_feed(connection, lease, "key = NULL, updated_at = NULL, created_at = NULL, proven = false")
    connection.execute("DELETE FROM holds WHERE feed = ?", (lease.id,))
    connection.execute(
        "UPDATE records SET ignored_until_seen = 1, suspected_at = NULL, absences = 0, missing_at = NULL, held = false"
        " WHERE feed = ?",
        (lease.id,),
    )
    if "key" in parts:  # no key string holds a space: the old ones meet no record again
        connection.execute("UPDATE records SET key = ' ' || row || ' ' || key WHERE feed = ?", (lease.id,))
        connection.execute("DELETE FROM details WHERE feed = ?", (lease.id,))


def save_shape(connection: Connection, lease: Lease, shape: Shape, *, proven: bool) -> None:
    values = (msgspec.json.encode(shape.key).decode(), shape.updated_at, shape.created_at, proven)
    update_feed(connection, lease, "key = ?, updated_at = ?, created_at = ?, proven = proven OR ?", values)


def save_listing_profile(connection: Connection, lease: Lease, listing_profile: str) -> None:
    update_feed(connection, lease, "listing_profile = ?", [listing_profile])


def save_plan(connection: Connection, lease: Lease, plan: str) -> None:
    update_feed(connection, lease, "plan = ?", [plan])


def save_signal(connection: Connection, lease: Lease, signal: str) -> None:
    update_feed(connection, lease, "signal = ?", [signal])


def save_problem(connection: Connection, lease: Lease, problem: str) -> None:
    update_feed(connection, lease, "problem = ?", [problem], "AND problem <> ?", only_values=[problem])


def decide_drift(connection: Connection, lease: Lease, decision: Decision) -> None:
    update_feed(connection, lease, "drift_decision = ?", [decision], "AND drift IS NOT NULL")


def close_run(
    connection: Connection,
    lease: Lease,
    run: RunRecord,
    progress: Progress | None,
    *,
    lateness: Lateness | None,
    statements: Sequence[Statement],
    compose: Compose | None,
    now: datetime,
) -> None:
    with transaction(connection):
        note_run(connection, lease, run, progress, lateness)
        if statements and compose is not None:
            state(connection, lease, statements, compose, now)


def note_run(
    connection: Connection, lease: Lease, run: RunRecord, progress: Progress | None, lateness: Lateness | None
) -> None:
    """Store how a run has ended, and where it has moved the watermark; inside a transaction."""
    save_run(connection, lease.id, run)
    if progress is None:
        update_feed(connection, lease)
    else:
        times = [micros(at) for at in (progress.watermark, progress.candidate, progress.newest, progress.tick)]
        # A pass that has ended since the poll looked may have found the newest date first.
        changes = "watermark = ?, candidate = ?, newest = coalesce(?, newest), tick = ?, tick_reads = ?"
        update_feed(connection, lease, changes, [*times, progress.tick_reads])
    if lateness is not None:
        save_lateness(connection, lease, lateness)


def save_lateness(connection: Connection, lease: Lease, lateness: Lateness) -> None:
    update_feed(connection, lease, "lateness = ?", [lateness.to_json()])


def state(
    connection: Connection, lease: Lease, statements: Sequence[Statement], compose: Compose, now: datetime
) -> None:
    """Publish statements; a gap that waited for it is stated then."""
    append_events(connection, lease, statements, compose, now)
    update_feed(connection, lease, "blind = NULL")


def publish(
    connection: Connection, lease: Lease, statements: Sequence[Statement], compose: Compose, now: datetime
) -> None:
    with transaction(connection):
        state(connection, lease, statements, compose, now)
