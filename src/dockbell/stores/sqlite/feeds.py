"""Statements about feeds: their state, their runs, how far a pass has come, what operators wish."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.model import JSON, Feed, RunKind, Statement
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.read_settings import keeps_records, keeps_shape
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import (
    Checkpoint,
    Command,
    CommandKind,
    CommandOutcome,
    Compose,
    Failing,
    FeedState,
    Reached,
    RunRecord,
    Tally,
)
from dockbell.stores.sqlite.outbox import append_events
from dockbell.stores.sqlite.transaction import micros, moment, transaction


def open_feed(connection: sqlite3.Connection, feed: Feed) -> FeedState:
    """Return a feed's state, making the feed if it is new."""
    with transaction(connection):
        connection.execute(
            "INSERT INTO feeds (source, resource, blind) SELECT ?, ?, nullif(reason, '') FROM life"
            " WHERE true ON CONFLICT DO NOTHING",
            (feed.source, feed.resource),
        )
    (state,) = load_feeds(connection, feed)
    return state


def load_feeds(connection: sqlite3.Connection, only: Feed | None = None) -> list[FeedState]:
    """Return the state of every feed, or of one."""
    where, values = ("", ()) if only is None else ("WHERE source = ? AND resource = ?", (only.source, only.resource))
    cursor = connection.execute(
        # CROSS JOIN fixes the order: holds are few, records may be a million.
        "SELECT feeds.*,"
        " (SELECT count(*) FROM holds CROSS JOIN records ON records.id = record WHERE feed = feeds.id) AS holds,"
        f" (SELECT count(*) FROM quarantine WHERE feed = feeds.id) AS quarantined FROM feeds {where} ORDER BY id",
        values,
    )
    names = [column[0] for column in cursor.description]
    return [_read_state(connection, dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def _read_state(connection: sqlite3.Connection, row: Mapping[str, Any]) -> FeedState:
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
        failed=_load_failed(connection, row["id"]),
        failing=_load_failing(connection, row["id"]),
        dropped=(dropped := tuple(msgspec.json.decode(row["dropped"]))),
        cleaning=tuple(place for place in cleaning["drop"] if place not in dropped),
    )


def begin_feed(
    connection: sqlite3.Connection, feed_id: int, first_asked_at: datetime, boundary: datetime | None
) -> None:
    """Store when a feed was first asked for, by the service's clock and by that of its records; polls begin there."""
    connection.execute(
        "UPDATE feeds SET first_asked_at = :s0, watermark = :s0, boundary = :boundary, newest = :boundary"
        " WHERE id = :id AND first_asked_at IS NULL",
        {"s0": to_micros(first_asked_at), "boundary": micros(boundary), "id": feed_id},
    )


def save_read_settings(
    connection: sqlite3.Connection,
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
            connection.execute("UPDATE feeds SET rebaselining = 1 WHERE id = ?", (feed_id,))
            if not keeps_records(parts):
                _begin_anew(connection, feed_id, parts)
            connection.execute("DELETE FROM checkpoints WHERE feed = ?", (feed_id,))
            append_events(connection, feed_id, [rebaseline], compose, now)


def _begin_anew(connection: sqlite3.Connection, feed_id: int, parts: Sequence[str]) -> None:
    """Forget all of a feed but its records, revisions and numbers, for other records may be read from now on.

    Those that are stored are missed by nobody until they are seen again: they may have other keys now, or no longer
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
            "UPDATE feeds SET key = NULL, updated_at = NULL, created_at = NULL, proven = 0 WHERE id = ?", (feed_id,)
        )
    connection.execute(
        "DELETE FROM holds WHERE record IN (SELECT id FROM records WHERE feed = ? AND held = 1)", (feed_id,)
    )
    connection.execute(
        "UPDATE records SET dormant = 1, suspected_at = NULL, absences = 0, missing_at = NULL, held = 0 WHERE feed = ?",
        (feed_id,),
    )
    if "key" in parts:  # no key string holds a space: the old ones meet no record again
        connection.execute("UPDATE records SET key = ' ' || id || ' ' || key WHERE feed = ?", (feed_id,))
        connection.execute("DELETE FROM details WHERE feed = ?", (feed_id,))


def save_shape(connection: sqlite3.Connection, feed_id: int, shape: Shape, *, proven: bool) -> None:
    """Store what was learned from the first page with records, and whether its key needs no proof."""
    connection.execute(
        "UPDATE feeds SET key = ?, updated_at = ?, created_at = ?, proven = max(proven, ?) WHERE id = ?",
        (msgspec.json.encode(shape.key).decode(), shape.updated_at, shape.created_at, proven, feed_id),
    )


def save_listing_profile(connection: sqlite3.Connection, feed_id: int, listing_profile: str) -> None:
    """Store what was learned of a feed's listing."""
    connection.execute("UPDATE feeds SET habits = ? WHERE id = ?", (listing_profile, feed_id))


def save_problem(connection: sqlite3.Connection, feed_id: int, problem: str) -> None:
    """Store what stops a feed, or the empty string when nothing does any more."""
    connection.execute("UPDATE feeds SET problem = ? WHERE id = ? AND problem <> ?", (problem, feed_id, problem))


def decide_drift(connection: sqlite3.Connection, feed_id: int, decision: Decision) -> None:
    """Store what becomes of the drift that is held."""
    connection.execute("UPDATE feeds SET drift_decision = ? WHERE id = ? AND drift IS NOT NULL", (decision, feed_id))


# Runs ----------------------------------------------------------------------------------------------------------------


RUN = "kind, asked_at, since, ended_at, pages, records, events, problem, tally, sent_at"


def load_run(connection: sqlite3.Connection, feed_id: int, kind: RunKind, *, complete: bool = True) -> RunRecord | None:
    """Return the last complete, or the last incomplete, run of a kind."""
    row = connection.execute(
        f"SELECT {RUN} FROM runs WHERE feed = ? AND kind = ? AND complete = ? ORDER BY id DESC LIMIT 1",
        (feed_id, kind, complete),
    ).fetchone()
    return None if row is None else read_run(row)


def read_run(row: Sequence[Any]) -> RunRecord:
    """Return the run of a row of the log."""
    kind, asked_at, since, ended_at, pages, records, events, problem, tally, sent_at = row
    return RunRecord(
        RunKind(kind),
        from_micros(asked_at),
        moment(since),
        from_micros(ended_at),
        pages,
        records,
        events,
        problem,
        Tally(**msgspec.json.decode(tally)),
        moment(sent_at),
    )


def _load_failed(connection: sqlite3.Connection, feed_id: int) -> RunRecord | None:
    """Return the last run that ended incomplete, of the kinds whose last run did."""
    failed = []
    for kind in RunKind:
        # By their order and not by when they ended: our clock may have gone back since.
        complete, incomplete = (
            connection.execute(
                "SELECT max(id) FROM runs WHERE feed = ? AND kind = ? AND complete = ?", (feed_id, kind, is_complete)
            ).fetchone()[0]
            or 0
            for is_complete in (True, False)
        )
        failed.append(incomplete if incomplete > complete else 0)
    row = connection.execute(f"SELECT {RUN} FROM runs WHERE id = ?", (max(failed),)).fetchone()
    return None if row is None else read_run(row)


def _load_failing(connection: sqlite3.Connection, feed_id: int) -> Failing | None:
    """Return the passes that ended incomplete since the last complete one."""
    where = "feed = ? AND kind = ? AND complete = 0 AND id > (SELECT coalesce(max(id), 0) FROM runs WHERE feed = ?"
    where += " AND kind = ? AND complete = 1)"
    about = (feed_id, RunKind.PASS) * 2
    count, since, last = connection.execute(
        f"SELECT count(*), min(ended_at), max(id) FROM runs WHERE {where}", about
    ).fetchone()
    if not count:
        return None
    (problem,) = connection.execute("SELECT problem FROM runs WHERE id = ?", (last,)).fetchone()
    return Failing(count, from_micros(since), problem)


def save_run(connection: sqlite3.Connection, feed_id: int, run: RunRecord) -> None:
    """Add a run to the log."""
    tally = {name: count for name in Tally.__slots__ if (count := getattr(run.tally, name))}
    connection.execute(
        f"INSERT INTO runs (feed, complete, {RUN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            feed_id,
            not run.problem,
            run.kind,
            to_micros(run.asked_at),
            micros(run.since),
            to_micros(run.ended_at),
            run.pages,
            run.records,
            run.events,
            run.problem,
            msgspec.json.encode(tally).decode(),
            micros(run.sent_at),
        ),
    )


def close_run(
    connection: sqlite3.Connection,
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


def save_lateness(connection: sqlite3.Connection, feed_id: int, lateness: Lateness) -> None:
    """Store how late the records of a feed become visible."""
    connection.execute("UPDATE feeds SET lateness = ? WHERE id = ?", (lateness.to_json(), feed_id))


def state(
    connection: sqlite3.Connection, feed_id: int, statements: Sequence[Statement], compose: Compose, now: datetime
) -> None:
    """Publish statements; a gap that waited for it is stated then."""
    append_events(connection, feed_id, statements, compose, now)
    connection.execute("UPDATE feeds SET blind = NULL WHERE id = ?", (feed_id,))


def publish(
    connection: sqlite3.Connection, feed_id: int, statements: Sequence[Statement], compose: Compose, now: datetime
) -> None:
    """Publish statements by themselves."""
    with transaction(connection):
        state(connection, feed_id, statements, compose, now)


# Checkpoints ---------------------------------------------------------------------------------------------------------


def save_checkpoint(connection: sqlite3.Connection, feed_id: int, checkpoint: Checkpoint) -> None:
    """Store how far a pass has come."""
    seen, rows = (zlib.compress(each.to_bytes(), 1) for each in (checkpoint.seen, checkpoint.rows))
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)",
        (feed_id, checkpoint.cursor, checkpoint.walk.decode(), seen, rows, to_micros(checkpoint.saved_at)),
    )


def load_checkpoint(connection: sqlite3.Connection, feed_id: int) -> Checkpoint | None:
    """Return how far an interrupted pass had come."""
    row = connection.execute(
        "SELECT cursor, walk, seen, rows, saved_at FROM checkpoints WHERE feed = ?", (feed_id,)
    ).fetchone()
    if row is None:
        return None
    cursor, walk, seen, rows, saved_at = row
    return Checkpoint(
        cursor,
        walk.encode(),
        SeenRows.from_bytes(zlib.decompress(seen)),
        SeenRows.from_bytes(zlib.decompress(rows)),
        from_micros(saved_at),
    )


def load_reached(connection: sqlite3.Connection) -> dict[Feed, Reached]:
    """Return how far the passes have come that may go on."""
    rows = connection.execute(
        "SELECT source, resource, walk ->> '$.pages', walk ->> '$.records', walk ->> '$.events', saved_at"
        " FROM checkpoints JOIN feeds ON feeds.id = feed"
    )
    return {
        Feed(source, resource): Reached(pages, records, events, from_micros(saved_at))
        for source, resource, pages, records, events, saved_at in rows
    }


def drop_checkpoint(connection: sqlite3.Connection, feed_id: int) -> None:
    """Forget how far a pass had come."""
    connection.execute("DELETE FROM checkpoints WHERE feed = ?", (feed_id,))


# Wishes --------------------------------------------------------------------------------------------------------------


def make_command(
    connection: sqlite3.Connection, feed_id: int | None, kind: CommandKind, now: datetime, key: str = ""
) -> int:
    """Note what an operator asks, of a feed or of one of its records; return its number."""
    cursor = connection.execute(
        "INSERT INTO wishes (wish, feed, key, made_at) VALUES (?, ?, ?, ?)", (kind.name, feed_id, key, to_micros(now))
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def load_commands(connection: sqlite3.Connection, only: int | None = None) -> list[Command]:
    """Return the wishes that wait, or one, whatever came of it."""
    where, values = ("done_at IS NULL", ()) if only is None else ("wishes.id = ?", (only,))
    return [
        Command(
            number,
            CommandKind[kind],
            None if source is None else Feed(source, resource),
            None if done_at is None else _read_outcome(outcome),
            key,
        )
        for number, kind, source, resource, done_at, outcome, key in connection.execute(
            "SELECT wishes.id, wish, source, resource, done_at, outcome, wishes.key FROM wishes"
            f" LEFT JOIN feeds ON feeds.id = feed WHERE {where} ORDER BY wishes.id",
            values,
        )
    ]


def _read_outcome(stored: str) -> CommandOutcome:
    if stored.startswith("{"):
        return msgspec.json.decode(stored, type=CommandOutcome)
    status, _, words = stored.partition(": ")  # older versions stored its text
    return msgspec.convert({"status": status, "detail": words}, CommandOutcome)


def finish_command(connection: sqlite3.Connection, command: Command, outcome: CommandOutcome, now: datetime) -> None:
    """Store the outcome of a command."""
    connection.execute(
        "UPDATE wishes SET done_at = ?, outcome = ? WHERE id = ?",
        (to_micros(now), msgspec.json.encode(outcome).decode(), command.id),
    )
