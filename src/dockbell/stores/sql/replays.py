"""Statements of what an operator decides about a sink: events to be sent again, dead letters, pauses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from dockbell.core.model import RESOURCES, ChangeKind, Event, Feed
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.publishing.settlement import DeadLetter
from dockbell.ports import Candidate, DeadGroup, Extent, Hurried, Offered, Reach, Selection, Undelivered
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.dialect import THEN_JOIN, values_of

_FEED_ID: Final = "(SELECT id FROM feeds WHERE source = :source AND resource = :resource)"

# Replays -------------------------------------------------------------------------------------------------------------


def load_reaches(
    connection: Connection, sink: str, start: Literal["now", "beginning", "state"]
) -> Mapping[Feed, Reach]:
    """Return how far a sink has come in each feed; where it has not begun, where it would begin now.

    A sink that is new begins at ``start``; one that is not takes all of a feed that is new to it.
    """
    rows = connection.execute(
        """
        SELECT source, resource, pruned, feeds.sequence, coalesce(origin, begins), coalesce(positions.sequence, begins)
        FROM (SELECT *, CASE WHEN :from_the_start OR EXISTS (SELECT 1 FROM positions WHERE sink = :sink)
            THEN 0 ELSE sequence END AS begins FROM feeds) AS feeds
        LEFT JOIN positions ON positions.sink = :sink AND positions.feed = feeds.id
        ORDER BY feeds.id
        """,
        {"sink": sink, "from_the_start": start == "beginning"},
    )
    return {
        Feed(source, resource): Reach(Extent(pruned, last), origin, position)
        for source, resource, pruned, last, origin, position in rows
    }


def read_candidates(
    connection: Connection,
    sink: str,
    feed: Feed,
    reach: Reach,
    selection: Selection,
    *,
    within: tuple[int, int],
    limit: int,
) -> Sequence[Candidate]:
    after, through = within
    conditions = ["events.sequence > :after", "events.sequence <= :through"]
    values: dict[str, object] = {
        "sink": sink,
        "source": feed.source,
        "resource": feed.resource,
        "position": reach.position,
        "after": after,
        "through": through,
        "most": limit,
    }
    for name, given in (("key", selection.keys), ("id", selection.ids)):
        if given:
            conditions.append(f"events.{name} IN (SELECT value FROM {values_of(f':{name}')})")
            values[name] = json.dumps(given)
    for relation, moment in ((">=", selection.since), ("<", selection.until)):
        if moment is not None:
            conditions.append(f"recorded_at {relation} {to_micros(moment)}")
    kinds = []
    if selection.failed:
        kinds.append("dead.sequence IS NOT NULL")
    if selection.never_sent:
        kinds.append(f"events.sequence <= {reach.origin:d}")
    if kinds:
        conditions.append(f"({' OR '.join(kinds)})")
    return [
        Candidate(Event(feed, *event), bool(is_owed), bool(is_waiting))
        for is_owed, is_waiting, *event in connection.execute(
            f"""
            SELECT dead.sequence IS NULL AND (events.sequence > :position
                    OR EXISTS (SELECT 1 FROM blocked WHERE blocked.sink = :sink AND blocked.feed = events.feed
                        AND blocked.key = events.key AND blocked.sequence <= events.sequence)),
                EXISTS (SELECT 1 FROM replays WHERE replays.sink = :sink AND replays.feed = events.feed
                    AND replays.sequence = events.sequence),
                events.sequence, events.key, events.id, type, change, revision, body
            FROM events LEFT JOIN dead_letters AS dead ON dead.sink = :sink AND dead.feed = events.feed
                AND dead.sequence = events.sequence AND dead.key = events.key
            WHERE events.feed = {_FEED_ID} AND {" AND ".join(conditions)}
            ORDER BY events.sequence LIMIT :most
            """,
            values,
        )
    ]


def offer(connection: Connection, sink: str, feed: Feed, events: Sequence[tuple[int, str]], now: datetime) -> Offered:
    """Have a sink offered events of a feed again, each a sequence and a key; they are dead letters no longer.

    A replay waits for each, but a key on hold goes on with its dead letter. A dead letter whose event is not kept any
    more stays. A replay that waits already is replaced, and so has another number: it may have been delivered a moment
    ago, and what came of that is saved under the old one.
    """
    feed_id = _find_feed(connection, feed)
    kept = set(_find_kept(connection, sink, feed_id, events))  # before the transaction, which others wait for
    with transaction(connection):
        on_hold = _find_on_hold(connection, sink, feed_id)
        heads = [event for event in events if event in on_hold]
        others = [event for event in events if event not in on_hold]
        connection.executemany(
            f"UPDATE blocked SET held = false, attempts = 0, due = {to_micros(now)}"
            " WHERE sink = ? AND feed = ? AND sequence = ? AND key = ?",
            ((sink, feed_id, *event) for event in heads),
        )
        there = [event for event in others if event in kept]
        replays = [(sink, feed_id, *event) for event in there]
        for statement in (  # not ON CONFLICT: it would keep the number
            "DELETE FROM replays WHERE sink = ? AND feed = ? AND sequence = ? AND key = ?",
            "INSERT INTO replays (sink, feed, sequence, key) VALUES (?, ?, ?, ?)",
        ):
            connection.executemany(statement, replays)
        _bury_no_longer(connection, sink, feed_id, [*heads, *there])
    return Offered(len(there), len(heads), len(others) - len(there))


def forget_replays(connection: Connection, sink: str, limit: int) -> int:
    with transaction(connection):
        return connection.execute(
            "DELETE FROM replays WHERE id IN (SELECT id FROM replays WHERE sink = ? LIMIT ?)", (sink, limit)
        ).rowcount


# Dead letters --------------------------------------------------------------------------------------------------------


def count_dead(connection: Connection, sink: str | None, selection: Selection) -> Sequence[DeadGroup]:
    where, values = _narrow(sink, selection)
    return [
        DeadGroup(name, Feed(source, resource), error, letters, keys, from_micros(first_at), from_micros(last_at))
        for name, source, resource, error, letters, keys, first_at, last_at in connection.execute(
            f"""
            SELECT sink, source, resource, error, count(*) AS letters, count(DISTINCT dead.key), min(died_at),
                max(died_at)
            FROM dead_letters AS dead JOIN feeds ON feeds.id = dead.feed
            WHERE {where} GROUP BY sink, dead.feed, source, resource, error
            ORDER BY sink, letters DESC, dead.feed, error
            """,
            values,
        )
    ]


def read_dead(
    connection: Connection, sink: str | None, selection: Selection, limit: int, after: Undelivered | None
) -> Sequence[Undelivered]:
    where, values = _narrow(sink, selection)
    if after is not None:
        where += f" AND (dead.sink, dead.feed, dead.sequence, dead.key) > (:after, {_FEED_ID}, :sequence, :key)"
        letter = after.letter
        values |= {"after": after.sink, "sequence": letter.sequence, "key": letter.key}
        values |= {"source": letter.feed.source, "resource": letter.feed.resource}
    rows = connection.execute(
        f"""
        SELECT dead.sink, source, resource, dead.key, dead.sequence, dead.attempts, died_at, dead.error, answer,
            type, coalesce(positions.origin = dead.sequence, false), coalesce(blocked.held, false)
        FROM dead_letters AS dead JOIN feeds ON feeds.id = dead.feed
        LEFT JOIN events ON events.feed = dead.feed AND events.sequence = dead.sequence AND events.key = dead.key
        LEFT JOIN blocked ON blocked.sink = dead.sink AND blocked.feed = dead.feed AND blocked.key = dead.key
            AND blocked.sequence = dead.sequence
        LEFT JOIN positions ON positions.sink = dead.sink AND positions.feed = dead.feed
        WHERE {where} ORDER BY dead.sink, dead.feed, dead.sequence, dead.key LIMIT :most
        """,
        values | {"most": limit},
    )
    return [
        Undelivered(
            name,
            DeadLetter(Feed(source, resource), key, sequence, attempts, from_micros(died_at), error, answer),
            kind or (_snapshot(resource) if is_told and resource in RESOURCES else ""),
            bool(holds),
        )
        for name, source, resource, key, sequence, attempts, died_at, error, answer, kind, is_told, holds in rows
    ]


def discard(connection: Connection, sink: str, feed: Feed, events: Sequence[tuple[int, str]], now: datetime) -> int:
    with transaction(connection):
        feed_id = _find_feed(connection, feed)
        on_hold = _find_on_hold(connection, sink, feed_id)
        heads = [event for event in events if event in on_hold]
        connection.executemany(
            f"UPDATE blocked SET held = false, sequence = sequence + 1, attempts = 0,"
            f" due = {to_micros(now)}, error = '' WHERE sink = ? AND feed = ? AND sequence = ? AND key = ?",
            ((sink, feed_id, *event) for event in heads),
        )
        _bury_no_longer(connection, sink, feed_id, events)
    return len(heads)


def _snapshot(resource: str) -> str:
    return f"dockbell.{RESOURCES[resource].singular}.{ChangeKind.SNAPSHOT}"


def _narrow(sink: str | None, selection: Selection) -> tuple[str, dict[str, Any]]:
    """Return the condition that a selection makes of dead letters, and its values."""
    conditions = ["true"]
    values: dict[str, Any] = {}
    if sink is not None:
        conditions.append("dead.sink = :sink")
        values["sink"] = sink
    if selection.feeds:
        conditions.append(f"source || '/' || resource IN (SELECT value FROM {values_of(':feeds')})")
        values["feeds"] = json.dumps([str(feed) for feed in selection.feeds])
    if selection.keys:
        conditions.append(f"dead.key IN (SELECT value FROM {values_of(':keys')})")
        values["keys"] = json.dumps(selection.keys)
    for relation, bound in ((">=", selection.first), ("<=", selection.last)):
        if bound is not None:
            conditions.append(f"dead.sequence {relation} {bound:d}")
    return " AND ".join(conditions), values


def _find_feed(connection: Connection, feed: Feed) -> int:
    found = connection.execute(
        "SELECT id FROM feeds WHERE source = ? AND resource = ?", (feed.source, feed.resource)
    ).fetchone()
    return int(found[0]) if found else 0


def _find_on_hold(connection: Connection, sink: str, feed_id: int) -> set[tuple[int, str]]:
    """Return the dead letters for whose keys an operator must decide."""
    return set(
        connection.execute(
            "SELECT blocked.sequence, blocked.key FROM blocked JOIN dead_letters AS dead ON dead.sink = blocked.sink"
            " AND dead.feed = blocked.feed AND dead.sequence = blocked.sequence AND dead.key = blocked.key"
            " WHERE blocked.sink = ? AND blocked.feed = ? AND held = true",
            (sink, feed_id),
        )
    )


def _find_kept(
    connection: Connection, sink: str, feed_id: int, events: Sequence[tuple[int, str]]
) -> Sequence[tuple[int, str]]:
    """Return those that can be sent: events that are kept, and stored records that have the number of the origin."""
    found = set(
        connection.execute(
            f"SELECT sequence, events.key FROM {values_of('?')} AS wanted {THEN_JOIN} events"
            " ON feed = ? AND sequence = CAST(wanted.value AS INTEGER)",
            (json.dumps([sequence for sequence, _ in events]), feed_id),
        )
    )
    row = connection.execute("SELECT origin FROM positions WHERE sink = ? AND feed = ?", (sink, feed_id)).fetchone()
    origin = None if row is None else row[0]
    return [event for event in events if event in found or event[0] == origin]


def _bury_no_longer(connection: Connection, sink: str, feed_id: int, events: Sequence[tuple[int, str]]) -> None:
    connection.executemany(
        "DELETE FROM dead_letters WHERE sink = ? AND feed = ? AND sequence = ? AND key = ?",
        ((sink, feed_id, *event) for event in events),
    )
    # What an operator has decided the relay must not decide as well.
    connection.execute(
        "INSERT INTO receivers (sink, decided) VALUES (?, 1)"
        " ON CONFLICT (sink) DO UPDATE SET decided = receivers.decided + 1",
        (sink,),
    )


# Pauses --------------------------------------------------------------------------------------------------------------


def pause(connection: Connection, sink: str, reason: str, now: datetime) -> bool:
    with transaction(connection):
        statement = "INSERT INTO pauses (sink, paused_at, reason) VALUES (?, ?, ?) ON CONFLICT (sink) DO NOTHING"
        values = (sink, to_micros(now), reason)
        return connection.execute(statement, values).rowcount > 0


def resume(connection: Connection, sink: str, now: datetime) -> bool:
    with transaction(connection):
        was_paused = connection.execute("DELETE FROM pauses WHERE sink = ?", (sink,)).rowcount > 0
        if was_paused:
            _hurry(connection, sink, now)
    return was_paused


def hurry(connection: Connection, sink: str, now: datetime) -> Hurried:
    with transaction(connection):
        return _hurry(connection, sink, now)


_AT_ONCE: Final = "CASE WHEN due < :now THEN due ELSE :now END"


def _hurry(connection: Connection, sink: str, now: datetime) -> Hurried:
    keys = connection.execute(
        f"UPDATE blocked SET due = {_AT_ONCE}, planned_at = NULL WHERE sink = :sink AND held = false",
        {"sink": sink, "now": to_micros(now)},
    ).rowcount
    replays = connection.execute(
        f"UPDATE replays SET due = {_AT_ONCE} WHERE sink = :sink", {"sink": sink, "now": to_micros(now)}
    ).rowcount
    connection.execute(
        "INSERT INTO receivers (sink, hurried) VALUES (?, 1)"
        " ON CONFLICT (sink) DO UPDATE SET asked_at = NULL, until = NULL, hurried = receivers.hurried + 1",
        (sink,),
    )
    return Hurried(keys, replays)
