"""Statements about feeds: their state, and how it changes at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.model import JSON, Feed, RunKind, Statement
from dockbell.core.moment import to_micros
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.read_settings import keeps_records, keeps_shape
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import (
    Compose,
    FeedState,
    RunRecord,
)
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.dialect import THEN_JOIN
from dockbell.stores.sql.outbox import append_events
from dockbell.stores.sql.runs import load_failed, load_failing, load_run, save_run
from dockbell.stores.sql.transaction import micros, moment, transaction


def open_feed(connection: Connection, feed: Feed) -> FeedState:
    """Return a feed's state, making the feed if it is new."""
    with transaction(connection):
        connection.execute(
            "INSERT INTO feeds (source, resource, blind) SELECT ?, ?, nullif(reason, '') FROM life"
            " WHERE true ON CONFLICT (source, resource) DO NOTHING",
            (feed.source, feed.resource),
        )
    (state,) = load_feeds(connection, feed)
    return state


def load_feeds(connection: Connection, only: Feed | None = None) -> list[FeedState]:
    """Return the state of every feed, or of one."""
    where, values = ("", ()) if only is None else ("WHERE source = ? AND resource = ?", (only.source, only.resource))
    cursor = connection.execute(
        "SELECT feeds.*,"
        f" (SELECT count(*) FROM holds {THEN_JOIN} records ON records.id = record WHERE feed = feeds.id) AS holds,"
        f" (SELECT count(*) FROM quarantine WHERE feed = feeds.id) AS quarantined FROM feeds {where} ORDER BY id",
        values,
    )
    names = [column[0] for column in cursor.description]
    return [_read_state(connection, dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def _read_state(connection: Connection, row: Mapping[str, Any]) -> FeedState:
    key, drift = row["key"], row["drift"]
    cleaning = {"drop": ()} if row["cleaning"] is None else msgspec.json.decode(row["cleaning"])
    return FeedState(
        id=row["id"],
        feed=Feed(row["source"], row["resource"]),
        shape=None if key is None else Shape(tuple(msgspec.json.decode(key)), row["updated_at"], row["created_at"]),
        read_settings=None if row["signature"] is None else msgspec.json.decode(row["signature"]),
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
        listing_profile=row["habits"],
        passes=row["passes"],
        sequence=row["sequence"],
        held=row["held"],
        holds=row["holds"],
        quarantined=row["quarantined"],
        drift=None if drift is None else Drift(frozenset(msgspec.json.decode(drift)), Decision(row["drift_decision"])),
        drift_at=moment(row["drift_at"]),
        drifted=row["drifted"],
        emitted=row["emitted"],
        blind=row["blind"] or "",
        confirm_at=moment(row["confirm_at"]),
        problem=row["problem"],
        poll=load_run(connection, row["id"], RunKind.POLL),
        full=load_run(connection, row["id"], RunKind.PASS),
        failed=load_failed(connection, row["id"]),
        failing=load_failing(connection, row["id"]),
        dropped=(dropped := tuple(msgspec.json.decode(row["dropped"]))),
        cleaning=tuple(place for place in cleaning["drop"] if place not in dropped),
    )


def begin_feed(connection: Connection, feed_id: int, first_asked_at: datetime, boundary: datetime | None) -> None:
    """Store when a feed was first asked for, by the service's clock and by that of its records; polls begin there."""
    connection.execute(
        "UPDATE feeds SET first_asked_at = :s0, watermark = :s0, boundary = :boundary, newest = :boundary"
        " WHERE id = :id AND first_asked_at IS NULL",
        {"s0": to_micros(first_asked_at), "boundary": micros(boundary), "id": feed_id},
    )


def save_read_settings(
    connection: Connection,
    feed_id: int,
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
        connection.execute(
            "UPDATE feeds SET signature = ? WHERE id = ?", (msgspec.json.encode(read_settings).decode(), feed_id)
        )
        if rebaseline is not None and compose is not None:
            parts = rebaseline.details["parts"]
            connection.execute("UPDATE feeds SET rebaselining = true WHERE id = ?", (feed_id,))
            if not keeps_records(parts):
                _begin_anew(connection, feed_id, parts)
            connection.execute("DELETE FROM checkpoints WHERE feed = ?", (feed_id,))
            append_events(connection, feed_id, [rebaseline], compose, now)


def _begin_anew(connection: Connection, feed_id: int, parts: Sequence[str]) -> None:
    """Forget all of a feed but its records, revisions and numbers, for other records may be read from now on.

    Absence checks ignore the stored records until they are seen again: they may have other keys now, or no longer
    match the query. A key that was proven stays so where it tells the same records apart: were nothing published until
    a pass has proven it again, what changed while dockbell was down would be lost.
    """
    connection.execute(
        "UPDATE feeds SET first_asked_at = NULL, boundary = NULL, watermark = NULL, candidate = NULL, newest = NULL,"
        " tick = NULL, tick_reads = 0, passes = 0, held = 0, confirm_at = NULL, drift = NULL, drift_decision = NULL,"
        " drift_at = NULL, drifted = 0, habits = '' WHERE id = ?",
        (feed_id,),
    )
    if not keeps_shape(parts):
        connection.execute(
            "UPDATE feeds SET key = NULL, updated_at = NULL, created_at = NULL, proven = false WHERE id = ?", (feed_id,)
        )
    connection.execute(
        "DELETE FROM holds WHERE record IN (SELECT id FROM records WHERE feed = ? AND held = true)", (feed_id,)
    )
    connection.execute(
        "UPDATE records SET dormant = 1, suspected_at = NULL, absences = 0, missing_at = NULL, held = false"
        " WHERE feed = ?",
        (feed_id,),
    )
    if "key" in parts:  # no key string holds a space: the old ones meet no record again
        connection.execute("UPDATE records SET key = ' ' || id || ' ' || key WHERE feed = ?", (feed_id,))
        connection.execute("DELETE FROM details WHERE feed = ?", (feed_id,))


def save_shape(connection: Connection, feed_id: int, shape: Shape, *, proven: bool) -> None:
    """Store what was learned from the first page with records, and whether its key needs no proof."""
    connection.execute(
        "UPDATE feeds SET key = ?, updated_at = ?, created_at = ?, proven = proven OR ? WHERE id = ?",
        (msgspec.json.encode(shape.key).decode(), shape.updated_at, shape.created_at, proven, feed_id),
    )


def save_listing_profile(connection: Connection, feed_id: int, listing_profile: str) -> None:
    """Store what was learned of a feed's listing."""
    connection.execute("UPDATE feeds SET habits = ? WHERE id = ?", (listing_profile, feed_id))


def save_problem(connection: Connection, feed_id: int, problem: str) -> None:
    """Store what stops a feed, or the empty string when nothing does any more."""
    connection.execute("UPDATE feeds SET problem = ? WHERE id = ? AND problem <> ?", (problem, feed_id, problem))


def decide_drift(connection: Connection, feed_id: int, decision: Decision) -> None:
    """Store what becomes of the drift that is held."""
    connection.execute("UPDATE feeds SET drift_decision = ? WHERE id = ? AND drift IS NOT NULL", (decision, feed_id))


def close_run(
    connection: Connection,
    feed_id: int,
    run: RunRecord,
    progress: Progress | None,
    *,
    lateness: Lateness | None,
    statements: Sequence[Statement],
    compose: Compose | None,
    now: datetime,
) -> None:
    """Store how a run ended, what it proves about the watermark and about lateness, and what is to be stated."""
    with transaction(connection):
        save_run(connection, feed_id, run)
        if progress is not None:
            connection.execute(
                "UPDATE feeds SET watermark = ?, candidate = ?, newest = ?, tick = ?, tick_reads = ? WHERE id = ?",
                (
                    micros(progress.watermark),
                    micros(progress.candidate),
                    micros(progress.newest),
                    micros(progress.tick),
                    progress.tick_reads,
                    feed_id,
                ),
            )
        if lateness is not None:
            save_lateness(connection, feed_id, lateness)
        if statements and compose is not None:
            state(connection, feed_id, statements, compose, now)


def save_lateness(connection: Connection, feed_id: int, lateness: Lateness) -> None:
    """Store how late the records of a feed become visible."""
    connection.execute("UPDATE feeds SET lateness = ? WHERE id = ?", (lateness.to_json(), feed_id))


def state(
    connection: Connection, feed_id: int, statements: Sequence[Statement], compose: Compose, now: datetime
) -> None:
    """Publish statements; a gap that waited for it is stated then."""
    append_events(connection, feed_id, statements, compose, now)
    connection.execute("UPDATE feeds SET blind = NULL WHERE id = ?", (feed_id,))


def publish(
    connection: Connection, feed_id: int, statements: Sequence[Statement], compose: Compose, now: datetime
) -> None:
    """Publish statements by themselves."""
    with transaction(connection):
        state(connection, feed_id, statements, compose, now)
