"""Statements that only look: what ``status``, ``events``, ``deletes`` and ``why`` show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from itertools import islice
from typing import Any, Final

from dockbell.core.comparing.page_diff import Finding
from dockbell.core.model import Event, Feed, RunKind, Via
from dockbell.core.moment import from_micros, micros, to_micros
from dockbell.core.publishing.settlement import Blocked, DeadLetter
from dockbell.core.text_search import TextSearch
from dockbell.ports import (
    Condition,
    Found,
    KeyStatus,
    Noted,
    Quarantined,
    RunRecord,
    SinkState,
    StoredRecord,
    StoredState,
)
from dockbell.stores.sql.browsing import LOOKED_MOST
from dockbell.stores.sql.connection import Connection, moment, reading
from dockbell.stores.sql.dialect import IS_HELD
from dockbell.stores.sql.runs import RUN, read_run

SEARCHED_MOST: Final = 5000
"""So many records are searched for a text at once, which takes less than a tenth of a second."""
_RECORD: Final = (
    "SELECT records.key, records.modified, records.fingerprint, revision, gone_at, suspected_at, there_at,"
    " ignored_until_seen, asked_at, queued_at, records.row, bodies.body FROM records"
    " LEFT JOIN holds ON holds.feed = records.feed AND holds.row = records.row"
    " LEFT JOIN details ON details.feed = records.feed AND details.row = records.row"
    " LEFT JOIN bodies ON bodies.feed = records.feed AND bodies.row = records.row"
)
_AMONG: Final = (
    f"{_RECORD} WHERE records.feed = ? AND records.row > ? AND records.row <= ? AND records.key NOT LIKE '% %'"
)

_THERE: Final = (
    "FROM records JOIN bodies USING (feed, row)"
    " WHERE feed = ? AND gone_at IS NULL AND row > ? AND key NOT LIKE '% %' ORDER BY row LIMIT ?"
)


def load_sinks(connection: Connection) -> Sequence[SinkState]:
    found = {
        sink: Found(Condition(condition), from_micros(since), reason)
        for sink, condition, since, reason in connection.execute(
            "SELECT sink, condition, since, reason FROM conditions"
        )
    }
    return [
        SinkState(
            name,
            owed,
            blocked,
            dead,
            moment(oldest),
            error,
            held,
            replays,
            paused or "",
            moment(paused_at),
            found.get(name),
        )
        for name, owed, blocked, dead, oldest, error, held, replays, paused, paused_at in connection.execute(
            f"""
            SELECT name,
                (SELECT coalesce(sum(feeds.sequence - positions.sequence), 0) FROM positions
                    JOIN feeds ON feeds.id = positions.feed WHERE positions.sink = name)
                + (SELECT count(*) FROM blocked
                    JOIN positions ON positions.sink = blocked.sink AND positions.feed = blocked.feed
                    JOIN events ON events.feed = blocked.feed AND events.key = blocked.key
                        AND events.sequence BETWEEN blocked.sequence AND positions.sequence
                    WHERE blocked.sink = name),
                (SELECT count(*) FROM blocked WHERE blocked.sink = name),
                (SELECT count(*) FROM dead_letters WHERE dead_letters.sink = name),
                (SELECT min(recorded_at) FROM (
                    SELECT recorded_at FROM positions JOIN events
                        ON events.feed = positions.feed AND events.sequence = positions.sequence + 1
                        WHERE positions.sink = name
                    UNION ALL
                    SELECT recorded_at FROM blocked JOIN events
                        ON events.feed = blocked.feed AND events.sequence = blocked.sequence
                        WHERE blocked.sink = name) AS owed),
                coalesce((SELECT error FROM blocked WHERE blocked.sink = name AND error <> ''
                    ORDER BY due LIMIT 1), ''),
                (SELECT count(*) FROM blocked WHERE blocked.sink = name AND {IS_HELD}),
                (SELECT count(*) FROM replays WHERE replays.sink = name),
                (SELECT reason FROM pauses WHERE pauses.sink = name),
                (SELECT paused_at FROM pauses WHERE pauses.sink = name)
            FROM (SELECT sink AS name FROM positions UNION SELECT sink FROM replays UNION SELECT sink FROM pauses)
                AS names
            ORDER BY name
            """
        )
    ]


def count_records(connection: Connection) -> Mapping[Feed, int]:
    return {
        Feed(source, resource): count
        for source, resource, count in connection.execute(
            # Two indexes are counted, instead of a million rows looked at.
            "SELECT source, resource, (SELECT count(*) FROM records WHERE feed = feeds.id)"
            " - (SELECT count(*) FROM records WHERE feed = feeds.id AND gone_at IS NOT NULL) FROM feeds ORDER BY id"
        )
    }


def read_latest(connection: Connection, after: int, limit: int) -> Sequence[tuple[int, Event]]:
    """Return events of all feeds in the order in which they were recorded, each with its place in that order."""
    if after < 0:
        (last,) = connection.execute("SELECT coalesce(max(entry), 0) FROM events").fetchone()
        after = max(0, last + after)
    return [
        (place, Event(Feed(source, resource), *event))
        for place, source, resource, *event in connection.execute(
            "SELECT entry, source, resource, events.sequence, events.key, events.id, type, change, revision,"
            " body FROM events JOIN feeds ON feeds.id = feed WHERE entry > ? ORDER BY entry LIMIT ?",
            (after, limit),
        )
    ]


# What the pull feeds show ---------------------------------------------------------------------------------------------


def measure_events(connection: Connection, feed: Feed, after: int, limit: int) -> Sequence[tuple[int, int]]:
    return connection.execute(
        "SELECT sequence, length(body) FROM events"
        " WHERE feed = (SELECT id FROM feeds WHERE source = ? AND resource = ?) AND sequence > ?"
        " ORDER BY sequence LIMIT ?",
        (*astuple(feed), after, limit),
    ).fetchall()


def measure_records(connection: Connection, feed: Feed, after: int, limit: int) -> Sequence[int]:
    rows = connection.execute(
        f"SELECT length(body) {_THERE}", (_find_sequence(connection, feed)[1], after, limit)
    ).fetchall()
    return [size for (size,) in rows]


def read_records(connection: Connection, feed: Feed, after: int, limit: int) -> tuple[int, Sequence[StoredState]]:
    with reading(connection):
        sequence, feed_id = _find_sequence(connection, feed)
        rows = connection.execute(f"SELECT row, key, revision, body {_THERE}", (feed_id, after, limit)).fetchall()
    return sequence, [StoredState(row, feed, key, revision, body) for row, key, revision, body in rows]


def read_record(connection: Connection, feed: Feed, key: str) -> tuple[int, StoredState | None]:
    with reading(connection):
        sequence, feed_id = _find_sequence(connection, feed)
        found = connection.execute(
            "SELECT row, revision, CASE WHEN gone_at IS NULL THEN body END FROM records"
            " LEFT JOIN bodies USING (feed, row) WHERE feed = ? AND key = ?",
            (feed_id, key),
        ).fetchone()
    return sequence, None if found is None else StoredState(found[0], feed, key, found[1], found[2])


def _find_sequence(connection: Connection, feed: Feed) -> tuple[int, int]:
    found = connection.execute("SELECT sequence, id FROM feeds WHERE source = ? AND resource = ?", astuple(feed))
    return found.fetchone() or (0, 0)


# One record ----------------------------------------------------------------------------------------------------------


def find_record(connection: Connection, feed_id: int, key: str) -> StoredRecord | None:
    row = connection.execute(f"{_RECORD} WHERE records.feed = ? AND records.key = ?", (feed_id, key)).fetchone()
    return None if row is None else _stored_record(row)


def read_stored(
    connection: Connection, feed_id: int, after: int, limit: int, with_gone: bool
) -> Sequence[StoredRecord]:
    there = "" if with_gone else " AND gone_at IS NULL"
    rows = connection.execute(
        f"{_RECORD} WHERE records.feed = ? AND records.row > ?{there} AND records.key NOT LIKE '% %'"
        " ORDER BY records.row LIMIT ?",
        (feed_id, after, limit),
    )
    return [_stored_record(row) for row in rows]


def find_records(
    connection: Connection, feed_id: int, part: str, after: int, limit: int
) -> tuple[Sequence[StoredRecord], int | None]:
    with reading(connection):
        end = _find_end(connection, feed_id)
        through = min(end, after + LOOKED_MOST)
        rows = connection.execute(
            rf"{_AMONG} AND lower(records.key) LIKE lower(?) ESCAPE '\' ORDER BY records.row LIMIT ?",
            (feed_id, after, through, _contain(part), limit),
        ).fetchall()
    return _go_on([_stored_record(row) for row in rows], limit, through, end)


def search_records(
    connection: Connection, feed_id: int, search: TextSearch, after: int, limit: int
) -> tuple[Sequence[StoredRecord], int | None]:
    with reading(connection):
        end = _find_end(connection, feed_id)
        through = min(end, after + SEARCHED_MOST)
        records = map(_stored_record, connection.execute(f"{_AMONG} ORDER BY records.row", (feed_id, after, through)))
        found = list(islice((each for each in records if search.matches(each.key, each.body)), limit))
    return _go_on(found, limit, through, end)


def _find_end(connection: Connection, feed_id: int) -> int:
    (end,) = connection.execute("SELECT coalesce(max(row), 0) FROM records WHERE feed = ?", (feed_id,)).fetchone()
    return int(end)


def _go_on(
    found: Sequence[StoredRecord], limit: int, through: int, end: int
) -> tuple[Sequence[StoredRecord], int | None]:
    """Return records that were found up to a place, and after which the search is to go on."""
    reached = found[-1].row if len(found) == limit else through
    return found, reached if reached < end else None


def _contain(part: str) -> str:
    """Return the pattern of LIKE for a text that has a part."""
    return "%" + re.sub(r"([%_\\])", r"\\\1", part) + "%"


def find_suspected(connection: Connection, feed_id: int, limit: int) -> Sequence[StoredRecord]:
    return [
        _stored_record(row)
        for row in connection.execute(
            f"{_RECORD} WHERE records.feed = ? AND suspected_at IS NOT NULL AND gone_at IS NULL"
            " ORDER BY suspected_at, records.row LIMIT ?",
            (feed_id, limit),
        )
    ]


def _stored_record(row: Sequence[Any]) -> StoredRecord:
    key, modified, fingerprint, revision, gone_at, suspected_at, there_at, ignored_until_seen, *waits, place, body = row
    held_at, awaited_at = waits
    return StoredRecord(
        key,
        moment(modified),
        fingerprint,
        revision,
        moment(gone_at),
        moment(suspected_at),
        moment(there_at),
        bool(ignored_until_seen),
        moment(held_at),
        moment(awaited_at),
        place,
        body,
    )


def find_quarantined(connection: Connection, feed_id: int, limit: int, key: str | None) -> Sequence[Quarantined]:
    return [
        Quarantined(key, problem, from_micros(first_at), from_micros(last_at))
        for key, problem, first_at, last_at in connection.execute(
            "SELECT key, problem, first_at, last_at FROM quarantine WHERE feed = :feed AND (:key IS NULL OR key = :key)"
            " ORDER BY last_at DESC, first_at DESC LIMIT :most",
            {"feed": feed_id, "key": key, "most": limit},
        )
    ]


def read_notes(connection: Connection, feed_id: int, key: str, limit: int) -> Sequence[Noted]:
    rows = connection.execute(
        "SELECT at, via, finding, modified, fingerprint, sequence FROM notes WHERE feed = ? AND key = ?"
        " ORDER BY id DESC LIMIT ?",
        (feed_id, key, limit),
    ).fetchall()
    return [
        Noted(from_micros(at), Via(via), Finding[finding], moment(modified), fingerprint, sequence)
        for at, via, finding, modified, fingerprint, sequence in reversed(rows)
    ]


def read_covering_runs(
    connection: Connection, feed_id: int, modified: datetime | None, after: datetime, limit: int
) -> Sequence[RunRecord]:
    rows = connection.execute(
        f"SELECT {RUN} FROM runs WHERE feed = ? AND (since IS NULL OR (since <= ? AND asked_at >= ?))"
        " ORDER BY id DESC LIMIT ?",
        (feed_id, micros(modified), to_micros(after), limit),
    ).fetchall()
    return [read_run(row) for row in reversed(rows)]


def read_readings(connection: Connection, after: datetime) -> Mapping[Feed, Sequence[tuple[datetime, datetime]]]:
    readings: dict[Feed, list[tuple[datetime, datetime]]] = {}
    for source, resource, known_at, ended_at in connection.execute(
        "SELECT source, resource, coalesce(sent_at, asked_at), ended_at FROM runs JOIN feeds ON feeds.id = feed"
        " WHERE ended_at > ? AND complete = true AND kind <> ? ORDER BY ended_at",
        (to_micros(after), RunKind.TRAILING),
    ):
        readings.setdefault(Feed(source, resource), []).append((from_micros(known_at), from_micros(ended_at)))
    return readings


def read_events_of(
    connection: Connection, feed_id: int, key: str, limit: int, change: str | None
) -> Sequence[tuple[datetime, Event]]:
    rows = connection.execute(
        "SELECT recorded_at, source, resource, events.sequence, events.key, events.id, type, change, revision, body"
        " FROM events JOIN feeds ON feeds.id = feed"
        " WHERE feed = :feed AND events.key = :key AND (:change IS NULL OR change = :change)"
        " ORDER BY events.sequence DESC LIMIT :most",
        {"feed": feed_id, "key": key, "change": change, "most": limit},
    ).fetchall()
    return [
        (from_micros(recorded_at), Event(Feed(source, resource), *event))
        for recorded_at, source, resource, *event in reversed(rows)
    ]


def find_last(connection: Connection, change: str) -> Mapping[Feed, Event]:
    rows = connection.execute(
        "SELECT source, resource, events.sequence, events.key, events.id, type, change, revision, body"
        " FROM feeds JOIN events ON events.feed = feeds.id AND events.sequence ="
        " (SELECT max(stated.sequence) FROM events AS stated"
        " WHERE stated.feed = feeds.id AND stated.key = '' AND stated.change = ?)",
        (change,),
    )
    return {Feed(source, resource): Event(Feed(source, resource), *event) for source, resource, *event in rows}


def load_key_statuses(connection: Connection, feed_id: int, key: str) -> Sequence[KeyStatus]:
    source, resource = connection.execute("SELECT source, resource FROM feeds WHERE id = ?", (feed_id,)).fetchone()
    feed, place = Feed(source, resource), (feed_id, key)
    blocked = {
        sink: Blocked(feed, key, sequence, attempts, from_micros(due), error, bool(held))
        for sink, sequence, attempts, due, error, held in connection.execute(
            "SELECT sink, sequence, attempts, due, error, held FROM blocked"
            " WHERE sink IN (SELECT DISTINCT sink FROM positions) AND feed = ? AND key = ?",
            place,
        )
    }
    dead: dict[str, list[DeadLetter]] = {}
    for sink, sequence, attempts, died_at, error, answer in connection.execute(
        "SELECT sink, sequence, attempts, died_at, error, answer FROM dead_letters"
        " WHERE sink IN (SELECT DISTINCT sink FROM positions) AND feed = ? AND key = ?"
        " ORDER BY sequence",
        place,
    ):
        dead.setdefault(sink, []).append(DeadLetter(feed, key, sequence, attempts, from_micros(died_at), error, answer))
    return [
        KeyStatus(sink, position, blocked.get(sink), tuple(dead.get(sink, ())), origin)
        for sink, position, origin in connection.execute(
            "SELECT sink, sequence, origin FROM positions WHERE feed = ? ORDER BY sink", (feed_id,)
        )
    ]
