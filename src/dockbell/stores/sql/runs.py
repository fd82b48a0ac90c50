"""Statements about runs: their log, and how far a pass has come that goes on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Feed, RunKind
from dockbell.core.moment import from_micros, to_micros
from dockbell.ports import (
    Checkpoint,
    Failing,
    Reached,
    RunRecord,
    Tally,
)
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.transaction import micros, moment, upsert

RUN = "kind, asked_at, since, ended_at, pages, records, events, problem, tally, sent_at"


def load_run(connection: Connection, feed_id: int, kind: RunKind, *, complete: bool = True) -> RunRecord | None:
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


def load_failed(connection: Connection, feed_id: int) -> RunRecord | None:
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


def load_failing(connection: Connection, feed_id: int) -> Failing | None:
    """Return the passes that ended incomplete since the last complete one."""
    where = "feed = ? AND kind = ? AND complete = false AND id > (SELECT coalesce(max(id), 0) FROM runs WHERE feed = ?"
    where += " AND kind = ? AND complete = true)"
    about = (feed_id, RunKind.PASS) * 2
    count, since, last = connection.execute(
        f"SELECT count(*), min(ended_at), max(id) FROM runs WHERE {where}", about
    ).fetchone()
    if not count:
        return None
    (problem,) = connection.execute("SELECT problem FROM runs WHERE id = ?", (last,)).fetchone()
    return Failing(count, from_micros(since), problem)


def save_run(connection: Connection, feed_id: int, run: RunRecord) -> None:
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


# Checkpoints ---------------------------------------------------------------------------------------------------------


_PUT_CHECKPOINT: Final = upsert("checkpoints", ["feed"], "cursor", "walk", "seen", "rows", "saved_at")


def save_checkpoint(connection: Connection, feed_id: int, checkpoint: Checkpoint) -> None:
    """Store how far a pass has come."""
    seen, rows = (zlib.compress(each.to_bytes(), 1) for each in (checkpoint.seen, checkpoint.rows))
    connection.execute(
        _PUT_CHECKPOINT,
        (feed_id, checkpoint.cursor, checkpoint.walk.decode(), seen, rows, to_micros(checkpoint.saved_at)),
    )


def load_checkpoint(connection: Connection, feed_id: int) -> Checkpoint | None:
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


def load_reached(connection: Connection) -> dict[Feed, Reached]:
    """Return how far the passes have come that may go on."""
    rows = connection.execute(
        "SELECT source, resource, CAST(walk ->> 'pages' AS INTEGER), CAST(walk ->> 'records' AS INTEGER),"
        " CAST(walk ->> 'events' AS INTEGER), saved_at FROM checkpoints JOIN feeds ON feeds.id = feed"
    )
    return {
        Feed(source, resource): Reached(pages, records, events, from_micros(saved_at))
        for source, resource, pages, records, events, saved_at in rows
    }


def drop_checkpoint(connection: Connection, feed_id: int) -> None:
    """Forget how far a pass had come."""
    connection.execute("DELETE FROM checkpoints WHERE feed = ?", (feed_id,))
