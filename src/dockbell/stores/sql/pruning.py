"""Statements that keep the store bounded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, TypeAlias

import msgspec

from dockbell.core.moment import to_micros
from dockbell.stores.sql.connection import Connection, reading, transaction
from dockbell.stores.sql.delivery import OWED
from dockbell.stores.sql.dialect import IS_HELD, THEN_JOIN, values_of

FeedPosition: TypeAlias = tuple[int, int]
"""A feed and a sequence in it, after which events are looked at."""
_LAST: Final = 2**63 - 1
_MINUTE: Final = 60_000_000  # microseconds
_THINNED: Final = timedelta(days=1)
"""Runs are looked at for so long: a janitor that was away for longer leaves some more of them."""


class Prunable(msgspec.Struct, frozen=True):
    """Events of a feed that every sink has settled: their numbers and keys, in order."""

    feed: int
    events: Sequence[tuple[int, str]]


def find_prunable(
    connection: Connection, before: datetime, sinks: Sequence[str], place: FeedPosition, limit: int
) -> tuple[Prunable, FeedPosition | None]:
    """Look at up to ``limit`` events of one feed from a place on, for those recorded before then that no sink owes.

    A sink owes what is after its position, and of a blocked key what is from its entry on. Sinks that are not named
    have left the configuration and owe nothing. Dead letters and replays keep their event.

    Returns:
        The events, and the place to go on from; None when all was looked at.
    """
    with reading(connection):
        found = connection.execute("SELECT min(id) FROM feeds WHERE id >= ?", (place[0],)).fetchone()
        feed = found[0]
        if feed is None:
            return Prunable(0, []), None
        named = json.dumps(sinks)
        (settled,) = connection.execute(
            f"SELECT min(sequence) FROM positions WHERE feed = ? AND sink IN (SELECT value FROM {values_of('?')})",
            (feed, named),
        ).fetchone()
        rows = connection.execute(
            "SELECT sequence, key, recorded_at FROM events WHERE feed = ? AND sequence > ? AND sequence <= ?"
            " ORDER BY sequence LIMIT ?",
            (feed, place[1] if feed == place[0] else 0, _LAST if settled is None else settled, limit),
        ).fetchall()
        # Events are recorded in the order of their numbers: what follows the first young one is not looked at.
        old = [(sequence, key) for sequence, key, at in takewhile(lambda row: row[2] < to_micros(before), rows)]
        further = (feed, rows[-1][0]) if len(old) == limit else (feed + 1, 0)
        return Prunable(feed, _find_unowed(connection, feed, old, named)), further


def _find_unowed(
    connection: Connection, feed: int, events: Sequence[tuple[int, str]], sinks: str
) -> list[tuple[int, str]]:
    if not events:
        return []
    kept = {
        sequence
        for table in ("dead_letters", "replays")
        for (sequence,) in connection.execute(
            f"SELECT sequence FROM {values_of('?')} AS named {THEN_JOIN} {table}"
            f" ON {table}.sink = named.value AND feed = ? AND sequence BETWEEN ? AND ?",
            (sinks, feed, events[0][0], events[-1][0]),
        )
    }
    owed = dict(
        connection.execute(
            f"SELECT blocked.key, min(sequence) FROM {values_of('?')} AS found CROSS JOIN {values_of('?')} AS named"
            f" {THEN_JOIN} blocked ON blocked.sink = named.value AND feed = ? AND blocked.key = found.value"
            " GROUP BY blocked.key",
            (json.dumps(list({key for _, key in events})), sinks, feed),
        ).fetchall()
    )
    return [(sequence, key) for sequence, key in events if sequence not in kept and sequence < owed.get(key, _LAST)]


def prune_events(connection: Connection, prunable: Prunable, sinks: Sequence[str]) -> None:
    feed, events = prunable.feed, prunable.events
    with transaction(connection):
        connection.executemany(
            "DELETE FROM events WHERE feed = ? AND sequence = ?", ((feed, sequence) for sequence, _ in events)
        )
        connection.execute(
            "UPDATE feeds SET pruned = :last WHERE id = :feed AND pruned < :last", {"last": events[-1][0], "feed": feed}
        )
        _take_back_positions(connection, feed, events, sinks)


def _take_back_positions(
    connection: Connection, feed: int, gone: Sequence[tuple[int, str]], sinks: Sequence[str]
) -> None:
    """Let the position of a sink that left show which events of its blocked keys it has lost, should it come back."""
    connection.execute(
        f"""
        UPDATE positions SET sequence = lost.first - 1 FROM (
            SELECT away.sink, min(CAST(went.value ->> 0 AS INTEGER)) AS first FROM positions AS away
                CROSS JOIN {values_of(":gone")} AS went
                {THEN_JOIN} blocked ON blocked.sink = away.sink AND blocked.feed = :feed
                    AND blocked.key = (went.value ->> 1)
                    AND blocked.sequence <= CAST(went.value ->> 0 AS INTEGER)
            WHERE away.feed = :feed AND away.sink NOT IN (SELECT value FROM {values_of(":sinks")}) GROUP BY away.sink
        ) AS lost WHERE positions.sink = lost.sink AND feed = :feed AND positions.sequence >= lost.first
        """,
        {"feed": feed, "gone": json.dumps(gone), "sinks": json.dumps(sinks)},
    )


def forget_letters(connection: Connection, before: datetime, now: datetime) -> Mapping[str, int]:
    died, counts = to_micros(before), Counter[str]()
    with transaction(connection):
        connection.execute(
            f"""
            UPDATE blocked SET held = false, attempts = 0, due = ?, sequence = sequence + 1 WHERE {IS_HELD} AND EXISTS (
                SELECT 1 FROM dead_letters AS letter WHERE letter.sink = blocked.sink AND letter.feed = blocked.feed
                    AND letter.sequence = blocked.sequence AND letter.key = blocked.key AND died_at < ?)
            """,
            (to_micros(now), died),
        )
        counts.update(
            sink for (sink,) in connection.execute("DELETE FROM dead_letters WHERE died_at < ? RETURNING sink", (died,))
        )
    return counts


def prune_history(connection: Connection, before: datetime, limit: int) -> int:
    """Delete up to ``limit`` runs, notes, attempts and bodies of tombstones, each, from before then; return how many.

    The last complete run of each kind stays, whatever its age.
    """
    values = {"before": to_micros(before), "most": limit}
    with transaction(connection):
        return sum(
            connection.execute(statement, values).rowcount
            for statement in (
                "DELETE FROM notes WHERE id IN (SELECT id FROM notes WHERE at < :before ORDER BY at LIMIT :most)",
                "DELETE FROM attempts WHERE id IN (SELECT id FROM attempts WHERE began_at < :before LIMIT :most)",
                """
                DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE ended_at < :before
                    AND id NOT IN (SELECT max(id) FROM runs GROUP BY feed, kind, complete)
                    ORDER BY ended_at LIMIT :most)
                """,
                """
                DELETE FROM bodies WHERE (feed, row) IN (SELECT feed, row FROM records JOIN bodies USING (feed, row)
                    WHERE gone_at < :before LIMIT :most)
                """,
                "DELETE FROM commands WHERE done_at < :before",
            )
        )


def thin_runs(connection: Connection, before: datetime, limit: int) -> int:
    """Delete idle runs of minutes that have a later complete one of their kind: a feed may be read every second."""
    with transaction(connection):
        return connection.execute(
            """
            DELETE FROM runs WHERE id IN (
                SELECT id FROM (
                    SELECT id, events, tally, lead(id) OVER (
                        PARTITION BY feed, kind, ended_at / :minute ORDER BY id) AS later
                    FROM runs WHERE ended_at < :before AND ended_at >= :after AND complete = true
                ) AS run WHERE later IS NOT NULL AND events = 0 AND tally = '{}' LIMIT :most)
            """,
            {"before": to_micros(before), "after": to_micros(before - _THINNED), "minute": _MINUTE, "most": limit},
        ).rowcount


def find_owing(connection: Connection, sinks: Sequence[str], before: datetime) -> Sequence[str]:
    found = connection.execute(
        f"SELECT sink FROM ({OWED}) AS owed WHERE sink IN (SELECT value FROM {values_of('?')}) AND recorded_at < ?"
        " GROUP BY sink ORDER BY min(recorded_at)",
        (json.dumps(sinks), to_micros(before)),
    )
    return [sink for (sink,) in found]
