"""Statements of delivery: reading the outbox, positions, blocked keys, dead letters, replays, pauses, conditions.

Where several processes share the store, each delivers the events of the feeds that it holds: ``scope`` is a condition
on ``feeds`` that says so, ``AND feeds.source IN (…)``; empty where one process has them all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dockbell.core.model import Event, Feed
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.publishing.settlement import Blocked, Pause, RecordId, Replay, Settlement, StartOffset
from dockbell.ports import Controls, Extent, Found
from dockbell.stores.sql.attempts import add_attempts
from dockbell.stores.sql.connection import FEED_ID, Connection, moment, portions, reading, transaction, upsert
from dockbell.stores.sql.dialect import IS_HELD, THEN_JOIN
from dockbell.stores.sql.life import STORE_LOST

OWED: Final = """
    SELECT sink, feed, (SELECT recorded_at FROM events WHERE events.feed = positions.feed
        AND events.sequence > positions.sequence ORDER BY events.sequence LIMIT 1) AS recorded_at FROM positions
"""
"""When the oldest event was recorded that a sink owes ahead of its position, by sink and feed; NULL where it owes none.

Not because of a blocked key: the sink takes events, and gives up what is owed of that one, as its relay decides.
"""
_LOST_SINCE: Final = """
    SELECT min(recorded_at) FROM (
        SELECT :since AS recorded_at
        UNION ALL
        SELECT (SELECT recorded_at FROM events WHERE events.feed = blocked.feed AND events.key = blocked.key
            AND events.sequence >= blocked.sequence AND events.sequence > origin ORDER BY events.sequence LIMIT 1)
            FROM blocked JOIN positions USING (sink, feed) WHERE sink = :sink AND feed = :feed
        UNION ALL
        SELECT lost_since FROM positions WHERE sink = :sink AND feed = :feed AND (backfilled_to IS NOT NULL
            OR EXISTS (SELECT 1 FROM blocked WHERE blocked.sink = :sink AND blocked.feed = :feed
                AND blocked.sequence <= origin))
    ) AS lost
"""
"""When the first event was recorded that a sink loses in a feed.

Events of its blocked keys are lost too, and events lost before that no backfill has made up for yet.
"""
_PUT_CONDITION: Final = upsert("conditions", ["sink"], "condition", "since", "reason")
_UNKNOWN: Final = datetime.fromtimestamp(0, UTC)
"""Stands for an unknown time of the first event that a sink has lost."""


def enroll(
    connection: Connection, sink: str, start: Literal["now", "beginning", "state"], now: datetime, scope: str = ""
) -> Sequence[Feed]:
    """Give a sink a position in every feed that it has none in: at ``start`` when the sink is new, else at the first.

    A new sink begins in the feeds of all processes at once. If it began in those of this process alone, the next one
    would take it for a known sink, and deliver all events of its own feeds.

    Where the store was lost, new sinks cannot be told from old: all receive the gap with which each feed began. A sink
    that was away for so long that events were pruned that it had not settled begins again with the stored records.

    Returns:
        The feeds in which it has lost events.
    """
    with transaction(connection):
        (reason,) = connection.execute("SELECT reason FROM life").fetchone()
        (known,) = connection.execute("SELECT count(*) FROM positions WHERE sink = ?", (sink,)).fetchone()
        at_the_end = start != "beginning" and not known and reason != STORE_LOST
        connection.execute(
            "INSERT INTO positions (sink, feed, sequence, origin, began_at, backfilled_to)"
            " SELECT :sink, id, origin, origin, :now, CASE WHEN :state THEN 0 END FROM"
            " (SELECT id, CASE WHEN :end THEN sequence ELSE pruned END AS origin FROM feeds"
            f" WHERE true {scope if known else ''}) AS feeds WHERE true ON CONFLICT (sink, feed) DO NOTHING",
            {"sink": sink, "end": at_the_end, "state": start == "state", "now": to_micros(now)},
        )
        behind = connection.execute(
            "SELECT feeds.id, source, resource FROM positions JOIN feeds ON feeds.id = feed"
            f" WHERE sink = ? AND positions.sequence < pruned AND ? {scope}",
            (sink, bool(known)),
        ).fetchall()
        for feed_id, _, _ in behind:
            _begin_again(connection, sink, feed_id, _UNKNOWN, now)
    return [Feed(source, resource) for _, source, resource in behind]


def overrun(connection: Connection, sink: str, before: datetime, now: datetime) -> Mapping[Feed, datetime]:
    with transaction(connection):
        rows = connection.execute(
            f"SELECT feed, source, resource, min(owed.recorded_at) FROM ({OWED}) AS owed JOIN feeds ON feeds.id = feed"
            " WHERE sink = ? GROUP BY feed, source, resource HAVING min(owed.recorded_at) < ?",
            (sink, to_micros(before)),
        ).fetchall()
        return {
            Feed(source, resource): _begin_again(connection, sink, feed_id, from_micros(oldest), now)
            for feed_id, source, resource, oldest in rows
        }


def _begin_again(connection: Connection, sink: str, feed_id: int, lost_since: datetime, now: datetime) -> datetime:
    """Move a sink to the end of a feed and begin a backfill, with the records that went since it lost events.

    Returns:
        Since when it has lost some.
    """
    values: dict[str, Any] = {"sink": sink, "feed": feed_id, "since": to_micros(lost_since), "now": to_micros(now)}
    (values["lost"],) = connection.execute(_LOST_SINCE, values).fetchone()
    connection.execute("DELETE FROM blocked WHERE sink = ? AND feed = ?", (sink, feed_id))
    connection.execute(
        "UPDATE positions SET (sequence, origin) = (SELECT sequence, sequence FROM feeds WHERE id = :feed),"
        " began_at = :now, lost_since = :lost, backfilled_to = 0 WHERE sink = :sink AND feed = :feed",
        values,
    )
    return from_micros(values["lost"])


def find_left(connection: Connection, sinks: Collection[str]) -> Mapping[str, int]:
    owed = connection.execute(
        "SELECT sink, sum(feeds.sequence - positions.sequence) FROM positions"
        " JOIN feeds ON feeds.id = feed GROUP BY sink"
    )
    return {sink: count for sink, count in owed if count and sink not in sinks}


def load_queue(connection: Connection, sink: str, scope: str = "") -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
    positions = {
        Feed(source, resource): sequence
        for source, resource, sequence in connection.execute(
            "SELECT source, resource, positions.sequence FROM positions JOIN feeds ON feeds.id = feed"
            f" WHERE sink = ? {scope}",
            (sink,),
        )
    }
    blocked = [
        Blocked(Feed(source, resource), key, sequence, attempts, from_micros(due), error, bool(held), moment(planned))
        for source, resource, key, sequence, attempts, due, error, held, planned in connection.execute(
            "SELECT source, resource, blocked.key, blocked.sequence, attempts, due, error, blocked.held, planned_at"
            f" FROM blocked JOIN feeds ON feeds.id = feed WHERE sink = ? {scope}",
            (sink,),
        )
    ]
    return positions, blocked


def load_starts(connection: Connection, sink: str, scope: str = "") -> Mapping[Feed, StartOffset]:
    return {
        Feed(source, resource): StartOffset(origin, from_micros(began_at or 0), backfilled_to, moment(lost_since))
        for source, resource, origin, began_at, backfilled_to, lost_since in connection.execute(
            "SELECT source, resource, origin, began_at, backfilled_to, lost_since FROM positions"
            f" JOIN feeds ON feeds.id = feed WHERE sink = ? {scope}",
            (sink,),
        )
    }


def note_conditions(connection: Connection, found: Mapping[str, Found]) -> None:
    with transaction(connection):
        connection.executemany(
            _PUT_CONDITION, [(sink, each.condition, to_micros(each.since), each.reason) for sink, each in found.items()]
        )


def load_controls(connection: Connection, sink: str, scope: str = "") -> Controls:
    held_by = f"AND feed IN (SELECT id FROM feeds WHERE true {scope})" if scope else ""
    with reading(connection):
        pause = connection.execute("SELECT reason FROM pauses WHERE sink = ?", (sink,)).fetchone()
        (held,) = connection.execute(
            f"SELECT count(*) FROM blocked WHERE sink = ? AND {IS_HELD} {held_by}", (sink,)
        ).fetchone()
        (due,) = connection.execute(f"SELECT min(due) FROM replays WHERE sink = ? {held_by}", (sink,)).fetchone()
        asked_at, until, hurried, decided = connection.execute(
            "SELECT asked_at, until, hurried, decided FROM receivers WHERE sink = ?", (sink,)
        ).fetchone() or (None, None, 0, 0)
    asked = None if asked_at is None or until is None else Pause(from_micros(asked_at), from_micros(until))
    return Controls(None if pause is None else pause[0], held, moment(due), asked, hurried, decided)


def load_replays(connection: Connection, sink: str, now: datetime, limit: int, scope: str = "") -> Sequence[Replay]:
    return [
        Replay(number, Feed(source, resource), sequence, key, attempts, from_micros(due), error)
        for number, source, resource, sequence, key, attempts, due, error in connection.execute(
            "SELECT replays.id, source, resource, replays.sequence, replays.key, attempts, due, error FROM replays"
            f" JOIN feeds ON feeds.id = feed WHERE sink = ? AND due <= ? {scope} ORDER BY due, replays.id LIMIT ?",
            (sink, to_micros(now), limit),
        )
    ]


def read_events(
    connection: Connection, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
) -> Sequence[Event]:
    values: list[object] = [feed.source, feed.resource, after]
    narrower = ""
    if key is not None:
        narrower += " AND key = ?"
        values.append(key)
    if until is not None:
        narrower += " AND sequence <= ?"
        values.append(until)
    return [
        Event(feed, sequence, of, event_id, type_, change, revision, body, from_micros(recorded_at), moment(visible_at))
        for sequence, of, event_id, type_, change, revision, body, recorded_at, visible_at in connection.execute(
            "SELECT sequence, key, id, type, change, revision, body, recorded_at, visible_at FROM events"
            " WHERE feed = (SELECT id FROM feeds WHERE source = ? AND resource = ?) AND sequence > ?"
            f"{narrower} ORDER BY sequence LIMIT ?",
            (*values, limit),
        )
    ]


def read_states(connection: Connection, places: Sequence[RecordId]) -> Mapping[RecordId, bytes]:
    states = {}
    for feed, key in places:
        found = connection.execute(
            "SELECT body FROM records JOIN bodies USING (feed, row)"
            " WHERE feed = (SELECT id FROM feeds WHERE source = ? AND resource = ?) AND key = ? AND gone_at IS NULL",
            (feed.source, feed.resource, key),
        ).fetchone()
        if found is not None:
            states[feed, key] = found[0]
    return states


def find_extents(connection: Connection) -> Mapping[Feed, Extent]:
    return {
        Feed(source, resource): Extent(pruned, sequence, baselines, bool(is_complete))
        for source, resource, pruned, sequence, baselines, is_complete in connection.execute(
            "SELECT source, resource, pruned, sequence, baselines, passes > 0 AND NOT rebaselining FROM feeds"
        )
    }


def find_extent(connection: Connection, feed: Feed) -> Extent | None:
    """Return which events of a feed there are; None where nothing is known of the feed."""
    row = connection.execute(
        "SELECT pruned, sequence, baselines, passes > 0 AND NOT rebaselining FROM feeds"
        " WHERE source = ? AND resource = ?",
        astuple(feed),
    ).fetchone()
    return Extent(row[0], row[1], row[2], bool(row[3])) if row else None


def settle(connection: Connection, sink: str, settlement: Settlement, scope: str = "") -> None:
    with transaction(connection):
        lost = _find_lost(connection, sink, settlement, scope)
        connection.executemany(
            f"UPDATE positions SET sequence = ? WHERE sink = ? AND feed = {FEED_ID}",
            ((sequence, sink, *astuple(feed)) for feed, sequence in settlement.positions.items() if feed not in lost),
        )
        connection.executemany(
            f"UPDATE positions SET backfilled_to = ? WHERE sink = ? AND feed = {FEED_ID}",
            ((row, sink, *astuple(feed)) for feed, row in settlement.backfilled_to.items() if feed not in lost),
        )
        connection.executemany(
            f"DELETE FROM blocked WHERE sink = ? AND feed = {FEED_ID} AND key = ?",
            ((sink, *astuple(feed), key) for feed, key in settlement.freed if feed not in lost),
        )
        connection.executemany(
            "INSERT INTO blocked (sink, feed, key, sequence, attempts, due, error, held, planned_at)"
            f" VALUES (?, {FEED_ID}, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (sink, feed, key) DO UPDATE SET"
            " sequence = excluded.sequence, attempts = excluded.attempts, due = excluded.due, error = excluded.error,"
            " held = excluded.held, planned_at = excluded.planned_at",
            (
                (
                    sink,
                    *astuple(entry.feed),
                    entry.key,
                    entry.sequence,
                    entry.attempts,
                    to_micros(entry.due),
                    entry.error,
                    entry.held,
                    None if entry.planned_at is None else to_micros(entry.planned_at),
                )
                for entry in settlement.blocked.values()
                if entry.feed not in lost
            ),
        )
        connection.executemany(
            f"DELETE FROM dead_letters WHERE sink = ? AND feed = {FEED_ID} AND sequence = ? AND key = ?",
            ((sink, *astuple(letter.feed), letter.sequence, letter.key) for letter in settlement.revived),
        )
        connection.executemany(
            "INSERT INTO dead_letters (sink, feed, sequence, key, attempts, died_at, error, answer)"
            f" VALUES (?, {FEED_ID}, ?, ?, ?, ?, ?, ?) ON CONFLICT (sink, feed, sequence, key) DO UPDATE SET"
            " attempts = excluded.attempts, died_at = excluded.died_at, error = excluded.error,"
            " answer = excluded.answer",
            (
                (
                    sink,
                    *astuple(letter.feed),
                    letter.sequence,
                    letter.key,
                    letter.attempts,
                    to_micros(letter.died_at),
                    letter.error,
                    letter.answer,
                )
                for letter in settlement.dead
            ),
        )
        connection.executemany(
            "UPDATE replays SET attempts = ?, due = ?, error = ? WHERE id = ?",
            ((each.attempts, to_micros(each.due), each.error, each.id) for each in settlement.postponed),
        )
        connection.executemany("DELETE FROM replays WHERE id = ?", ((number,) for number in settlement.replayed))
        add_attempts(connection, sink, settlement.attempts)
        if (asked := settlement.pause) is not None:
            connection.execute(
                "INSERT INTO receivers (sink, asked_at, until) VALUES (?, ?, ?)"
                " ON CONFLICT (sink) DO UPDATE SET asked_at = excluded.asked_at, until = excluded.until",
                (sink, to_micros(asked.asked_at), to_micros(asked.until)),
            )


def _find_lost(connection: Connection, sink: str, settlement: Settlement, scope: str) -> Collection[Feed]:
    """Return the feeds of a settlement that are another process's, or in which the sink has begun again since.

    It belongs to the holder, or to the start, before.
    """
    touched = {feed for feed, _ in (*settlement.blocked, *settlement.freed)}
    touched |= settlement.positions.keys() | settlement.backfilled_to.keys()
    known = touched & settlement.origins.keys()
    origins = {
        Feed(source, resource): origin
        for some in portions(list(known))
        for source, resource, origin in connection.execute(
            f"WITH named (source, resource) AS (VALUES {', '.join(['(?, ?)'] * len(some))})"
            f" SELECT feeds.source, feeds.resource, origin FROM named {THEN_JOIN} feeds"
            f" ON feeds.source = named.source AND feeds.resource = named.resource {THEN_JOIN} positions"
            f" ON positions.feed = feeds.id AND sink = ? WHERE true {scope}",
            (*(part for feed in some for part in astuple(feed)), sink),
        )
    }
    return {feed for feed in known if origins.get(feed) != settlement.origins[feed]}
