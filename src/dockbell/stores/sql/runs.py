"""Statements about runs: their log, and how far a pass has come that goes on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Feed, RunKind
from dockbell.core.moment import from_micros, micros, to_micros
from dockbell.ports import Checkpoint, Failing, Reached, RunRecord, Tally
from dockbell.stores.sql.connection import Connection, moment, transaction, upsert
from dockbell.stores.sql.lease import Lease, update_feed

RUN = "kind, asked_at, since, ended_at, pages, records, events, problem, tally, sent_at"


def load_run(connection: Connection, feed_id: int, kind: RunKind) -> RunRecord | None:
    """Return the last complete run of a kind."""
    row = connection.execute(
        f"SELECT {RUN} FROM runs WHERE feed = ? AND kind = ? AND complete = true ORDER BY id DESC LIMIT 1",
        (feed_id, kind),
    ).fetchone()
    return None if row is None else read_run(row)


def read_run(row: Sequence[Any]) -> RunRecord:
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


_PUT_CHECKPOINT: Final = upsert("checkpoints", ["feed"], "cursor", "run", "seen", "rows", "saved_at")


def save_checkpoint(connection: Connection, lease: Lease, checkpoint: Checkpoint) -> None:
    seen, rows = (zlib.compress(each.to_bytes(), 1) for each in (checkpoint.seen, checkpoint.rows))
    with transaction(connection):
        update_feed(connection, lease)
        connection.execute(
            _PUT_CHECKPOINT,
            (lease.id, checkpoint.cursor, checkpoint.run.decode(), seen, rows, to_micros(checkpoint.saved_at)),
        )


def load_checkpoint(connection: Connection, feed_id: int) -> Checkpoint | None:
    row = connection.execute(
        "SELECT cursor, run, seen, rows, saved_at FROM checkpoints WHERE feed = ?", (feed_id,)
    ).fetchone()
    if row is None:
        return None
    cursor, run, seen, rows, saved_at = row
    return Checkpoint(
        cursor,
        run.encode(),
        SeenRows.from_bytes(zlib.decompress(seen)),
        SeenRows.from_bytes(zlib.decompress(rows)),
        from_micros(saved_at),
    )


def load_reached(connection: Connection) -> dict[Feed, Reached]:
    rows = connection.execute(
        "SELECT source, resource, CAST(run ->> 'pages' AS INTEGER), CAST(run ->> 'records' AS INTEGER),"
        " CAST(run ->> 'events' AS INTEGER), saved_at FROM checkpoints JOIN feeds ON feeds.id = feed"
    )
    return {
        Feed(source, resource): Reached(pages, records, events, from_micros(saved_at))
        for source, resource, pages, records, events, saved_at in rows
    }


def drop_checkpoint(connection: Connection, lease: Lease) -> None:
    with transaction(connection):
        update_feed(connection, lease)
        connection.execute("DELETE FROM checkpoints WHERE feed = ?", (lease.id,))
