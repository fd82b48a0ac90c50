"""Statements about runs: their log, and how far a pass has come that goes on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Feed, RunKind
from dockbell.core.moment import from_micros, micros, to_micros
from dockbell.ports import Checkpoint, Failing, Reached, RunRecord, Tally
from dockbell.stores.sql.connection import Connection, moment, transaction, upsert
from dockbell.stores.sql.dialect import values_of
from dockbell.stores.sql.lease import Lease, update_feed

RUN = "kind, asked_at, since, ended_at, pages, records, events, problem, tally, sent_at"


def load_run(connection: Connection, feed_id: int, kind: RunKind) -> RunRecord | None:
    """Return the last complete run of a kind."""
    row = connection.execute(
        f"SELECT {RUN} FROM runs WHERE feed = ? AND kind = ? AND complete = true ORDER BY id DESC LIMIT 1",
        (feed_id, kind),
    ).fetchone()
    return None if row is None else read_run(row)


@dataclass(frozen=True, slots=True)
class LastRuns:
    """The last runs of a feed, where there are any."""

    poll: RunRecord | None = None  # the last complete one
    full: RunRecord | None = None  # the last complete pass
    trailing: RunRecord | None = None  # the last complete trailing poll
    failed: RunRecord | None = None  # the last that ended incomplete, of the kinds whose last run did
    failing: Failing | None = None  # the passes that ended incomplete since the last complete one


_LAST: Final = "(SELECT max(id) FROM runs WHERE feed = feeds.id AND kind = '{kind}' AND complete = {is_complete})"
"""The last by their order and not by when they ended: our clock may have gone back since."""
_COLUMNS: Final = ("id", *RUN.split(", "))
LAST: Final = {
    name: column
    for kind in RunKind
    for name, column in (
        (f"{kind}_failed", _LAST.format(kind=kind, is_complete="false")),
        *((f"{kind}_{column}", f"last_{kind}.{column}") for column in _COLUMNS),
    )
}
"""Columns for a query of ``feeds`` and :data:`WITH_LAST` by the names under which :func:`load_last` needs them."""
WITH_LAST: Final = " ".join(
    f"LEFT JOIN runs AS last_{kind} ON last_{kind}.id = {_LAST.format(kind=kind, is_complete='true')}"
    for kind in RunKind
)


def load_last(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Mapping[int, LastRuns]:
    """Return the last runs of feeds by their ids; the rows of these feeds have the columns of :data:`LAST`."""
    failed = {row["id"]: _find_failed(row) for row in rows}
    runs: dict[int, RunRecord] = {}
    if wanted := [number for number in failed.values() if number]:
        runs = {
            number: read_run(columns)
            for number, *columns in connection.execute(
                f"SELECT id, {RUN} FROM runs WHERE id IN (SELECT CAST(value AS INTEGER) FROM {values_of('?')})",
                (json.dumps(wanted),),
            )
        }
    return {
        row["id"]: LastRuns(
            _read_last(row, RunKind.POLL),
            _read_last(row, RunKind.PASS),
            _read_last(row, RunKind.TRAILING),
            runs.get(failed[row["id"]]),
            _load_failing(connection, row["id"], row[f"{RunKind.PASS}_id"] or 0) if failed[row["id"]] else None,
        )
        for row in rows
    }


def _find_failed(row: Mapping[str, Any]) -> int:
    """Return the id of the last incomplete run of the kinds whose last run was incomplete; 0 where none was."""
    ends = [(row[f"{kind}_id"] or 0, row[f"{kind}_failed"] or 0) for kind in RunKind]
    return max(failed if failed > complete else 0 for complete, failed in ends)


def _read_last(row: Mapping[str, Any], kind: RunKind) -> RunRecord | None:
    number, *columns = [row[f"{kind}_{column}"] for column in _COLUMNS]
    return None if number is None else read_run(columns)


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


def _load_failing(connection: Connection, feed_id: int, after: int) -> Failing | None:
    """Return the passes that ended incomplete after a run."""
    row = connection.execute(
        "SELECT count(*), min(ended_at), max(id) FROM runs WHERE feed = ? AND kind = ? AND complete = false AND id > ?",
        (feed_id, RunKind.PASS, after),
    ).fetchone()
    count, since, last = row
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
