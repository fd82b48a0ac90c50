"""Statements of delivery: reading the outbox, positions, blocked keys, dead letters, and the pruning of events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from dockbell.core.model import Event, Feed
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.publishing.ledger import Blocked, Place, Settlement
from dockbell.stores.sqlite.life import STORE_LOST
from dockbell.stores.sqlite.transaction import transaction


def enroll(connection: sqlite3.Connection, sink: str, start: Literal["now", "beginning"]) -> None:
    """Give a sink a position in every feed that it has none in: at ``start`` when the sink is new, else at 0.

    Where the store was lost nobody knows which sinks are new: all hear of the gap with which each feed began.
    """
    with transaction(connection):
        (reason,) = connection.execute("SELECT reason FROM life").fetchone()
        (known,) = connection.execute("SELECT count(*) FROM positions WHERE sink = ?", (sink,)).fetchone()
        at_the_end = start == "now" and not known and reason != STORE_LOST
        connection.execute(
            f"INSERT INTO positions SELECT ?, id, {'sequence' if at_the_end else '0'} FROM feeds WHERE true"
            " ON CONFLICT DO NOTHING",
            (sink,),
        )


def load_ledger(connection: sqlite3.Connection, sink: str) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
    """Return a sink's positions and blocked keys."""
    positions = {
        Feed(source, resource): sequence
        for source, resource, sequence in connection.execute(
            "SELECT source, resource, positions.sequence FROM positions JOIN feeds ON feeds.id = feed WHERE sink = ?",
            (sink,),
        )
    }
    blocked = [
        Blocked(Feed(source, resource), key, sequence, attempts, from_micros(due), error)
        for source, resource, key, sequence, attempts, due, error in connection.execute(
            "SELECT source, resource, blocked.key, blocked.sequence, attempts, due, error"
            " FROM blocked JOIN feeds ON feeds.id = feed WHERE sink = ?",
            (sink,),
        )
    ]
    return positions, blocked


def read_events(
    connection: sqlite3.Connection,
    feed: Feed,
    after: int,
    limit: int,
    *,
    key: str | None = None,
    until: int | None = None,
) -> Sequence[Event]:
    """Return events of a feed after a sequence, in order; of one key only, and up to a sequence, where given."""
    values: list[object] = [feed.source, feed.resource, after]
    narrower = ""
    if key is not None:
        narrower += " AND key = ?"
        values.append(key)
    if until is not None:
        narrower += " AND sequence <= ?"
        values.append(until)
    return [
        Event(feed, *row)
        for row in connection.execute(
            "SELECT sequence, key, id, type, change, revision, body FROM events"
            " WHERE feed = (SELECT id FROM feeds WHERE source = ? AND resource = ?) AND sequence > ?"
            f"{narrower} ORDER BY sequence LIMIT ?",
            (*values, limit),
        )
    ]


def last_sequences(connection: sqlite3.Connection) -> Mapping[Feed, int]:
    """Return the number of the last event of every feed."""
    return {
        Feed(source, resource): sequence
        for source, resource, sequence in connection.execute("SELECT source, resource, sequence FROM feeds")
    }


def read_states(connection: sqlite3.Connection, places: Sequence[Place]) -> Mapping[Place, bytes]:
    """Return the latest committed raw JSON of these keys; those that are gone or unknown are left out."""
    states = {}
    for feed, key in places:
        found = connection.execute(
            "SELECT body FROM records JOIN bodies ON record = id"
            " WHERE feed = (SELECT id FROM feeds WHERE source = ? AND resource = ?) AND key = ? AND gone_at IS NULL",
            (feed.source, feed.resource, key),
        ).fetchone()
        if found is not None:
            states[feed, key] = found[0]
    return states


def settle(connection: sqlite3.Connection, sink: str, settlement: Settlement) -> None:
    """Save what a sink has settled."""
    feed_id = "(SELECT id FROM feeds WHERE source = ? AND resource = ?)"
    with transaction(connection):
        connection.executemany(
            f"UPDATE positions SET sequence = ? WHERE sink = ? AND feed = {feed_id}",
            ((sequence, sink, feed.source, feed.resource) for feed, sequence in settlement.positions.items()),
        )
        connection.executemany(
            f"DELETE FROM blocked WHERE sink = ? AND feed = {feed_id} AND key = ?",
            ((sink, feed.source, feed.resource, key) for feed, key in settlement.freed),
        )
        connection.executemany(
            f"INSERT OR REPLACE INTO blocked VALUES (?, {feed_id}, ?, ?, ?, ?, ?)",
            (
                (
                    sink,
                    entry.feed.source,
                    entry.feed.resource,
                    entry.key,
                    entry.sequence,
                    entry.attempts,
                    to_micros(entry.due),
                    entry.error,
                )
                for entry in settlement.blocked.values()
            ),
        )
        connection.executemany(
            f"INSERT OR REPLACE INTO dead_letters VALUES (?, {feed_id}, ?, ?, ?, ?, ?)",
            (
                (
                    sink,
                    letter.feed.source,
                    letter.feed.resource,
                    letter.sequence,
                    letter.key,
                    letter.attempts,
                    to_micros(letter.died_at),
                    letter.error,
                )
                for letter in settlement.dead
            ),
        )


def prune_events(connection: sqlite3.Connection, before: datetime, sinks: Sequence[str], limit: int) -> int:
    """Delete up to ``limit`` events recorded before then that none of the sinks owes; return how many.

    A sink owes what is after its position, and of a blocked key what is from its entry on. Sinks that are not named
    have left the configuration and owe nothing. Dead letters keep their event.
    """
    pruned = 0
    with transaction(connection):
        for (feed,) in connection.execute("SELECT id FROM feeds").fetchall():
            # Events are recorded in the order of their numbers: what follows the first young one is not looked at.
            young = connection.execute(
                "SELECT sequence FROM events WHERE feed = ? AND recorded_at >= ? ORDER BY sequence LIMIT 1",
                (feed, to_micros(before)),
            ).fetchone()
            pruned += connection.execute(
                """
                DELETE FROM events WHERE feed = :feed AND sequence IN (
                    SELECT sequence FROM events AS old
                    WHERE feed = :feed AND sequence < coalesce(:young, sequence + 1)
                    AND sequence <= coalesce((SELECT min(sequence) FROM positions WHERE feed = :feed
                        AND sink IN (SELECT value FROM json_each(:sinks))), sequence)
                    AND NOT EXISTS (SELECT 1 FROM blocked WHERE feed = :feed AND blocked.key = old.key
                        AND blocked.sequence <= old.sequence AND sink IN (SELECT value FROM json_each(:sinks)))
                    AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE feed = :feed
                        AND dead_letters.sequence = old.sequence AND sink IN (SELECT value FROM json_each(:sinks)))
                    ORDER BY sequence LIMIT :most
                )
                """,
                {
                    "feed": feed,
                    "young": None if young is None else young[0],
                    "sinks": json.dumps(sinks),
                    "most": limit - pruned,
                },
            ).rowcount
    return pruned


def prune_history(connection: sqlite3.Connection, before: datetime, limit: int) -> int:
    """Delete up to ``limit`` runs and notes, and as many bodies of tombstones, from before then; return how many.

    The last complete run of each kind stays, whatever its age.
    """
    values = {"before": to_micros(before), "most": limit}
    with transaction(connection):
        return sum(
            connection.execute(statement, values).rowcount
            for statement in (
                "DELETE FROM notes WHERE id IN (SELECT id FROM notes WHERE at < :before ORDER BY at LIMIT :most)",
                """
                DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE ended_at < :before
                    AND id NOT IN (SELECT max(id) FROM runs GROUP BY feed, kind, complete)
                    ORDER BY ended_at LIMIT :most)
                """,
                """
                DELETE FROM bodies WHERE record IN (SELECT id FROM records JOIN bodies ON record = id
                    WHERE gone_at < :before LIMIT :most)
                """,
                "DELETE FROM wishes WHERE done_at < :before",
            )
        )
