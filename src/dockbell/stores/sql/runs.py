"""Statements about runs: their log, and how far a pass has come that goes on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
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


class LastRuns(msgspec.Struct, frozen=True):
    """The last runs of a feed, where there are any."""

    poll: RunRecord | None = None  # the last complete one
    full: RunRecord | None = None  # the last complete pass
    trailing: RunRecord | None = None  # the last complete trailing poll
    failing: Mapping[RunKind, Failing] = msgspec.field(default_factory=dict)
    """Those that ended incomplete since the last complete one of their kind."""


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
    failed = [row["id"] for row in rows if is_failing(row)]
    failing = _load_failing(connection, failed) if failed else {}
    return {
        row["id"]: LastRuns(
            _read_last(row, RunKind.POLL),
            _read_last(row, RunKind.PASS),
            _read_last(row, RunKind.TRAILING),
            failing.get(row["id"], {}),
        )
        for row in rows
    }


def is_failing(row: Mapping[str, Any]) -> bool:
    """Return whether the last run of any kind was incomplete."""
    return any((row[f"{kind}_failed"] or 0) > (row[f"{kind}_id"] or 0) for kind in RunKind)


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


_FAILING: Final = f"""
SELECT last.feed, last.kind, failed.count, failed.since, last.ended_at, last.problem
FROM (
  SELECT count(*) AS count, min(ended_at) AS since, max(id) AS id FROM runs
  WHERE complete = false AND feed IN (SELECT CAST(value AS INTEGER) FROM {values_of("?")})
  AND id > (
    SELECT coalesce(max(id), 0) FROM runs AS whole
    WHERE whole.feed = runs.feed AND whole.kind = runs.kind AND whole.complete = true
  )
  GROUP BY feed, kind
) AS failed
JOIN runs AS last ON last.id = failed.id
"""


def _load_failing(connection: Connection, feed_ids: Sequence[int]) -> Mapping[int, Mapping[RunKind, Failing]]:
    """Return the runs of feeds that ended incomplete after the last complete one of their kind."""
    failing: dict[int, dict[RunKind, Failing]] = {}
    for feed, kind, count, since, until, problem in connection.execute(_FAILING, (json.dumps(feed_ids),)):
        failing.setdefault(feed, {})[RunKind(kind)] = Failing(count, from_micros(since), from_micros(until), problem)
    return failing


def save_run(connection: Connection, feed_id: int, run: RunRecord) -> None:
    tally = {name: count for name in Tally.__struct_fields__ if (count := getattr(run.tally, name))}
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
