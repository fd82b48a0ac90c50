"""The writing of events and of findings, inside the transaction of what they tell of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from dockbell.core.comparing.page_diff import Note
from dockbell.core.model import Change, Event, Feed, Statement, Via
from dockbell.core.moment import micros, to_micros
from dockbell.ports import Compose
from dockbell.stores.sql.connection import Connection, upsert
from dockbell.stores.sql.dialect import LOCKED
from dockbell.stores.sql.lease import Lease, update_feed

PUT_BODY: Final = upsert("bodies", ["feed", "row"], "body")


def last_sequence(connection: Connection, feed_id: int) -> int:
    """Return the sequence of a feed's last event, in the transaction that adds others."""
    (sequence,) = connection.execute(f"SELECT sequence FROM feeds WHERE id = ? {LOCKED}", (feed_id,)).fetchone()
    return int(sequence)


def last_sequences(connection: Connection) -> Mapping[Feed, int]:
    """Return the sequence of the last event of every feed."""
    return {
        Feed(source, resource): sequence
        for source, resource, sequence in connection.execute("SELECT source, resource, sequence FROM feeds")
    }


def find_end(connection: Connection, feed: Feed) -> int:
    """Return the sequence of a feed's last event; 0 if the store does not know the feed."""
    row = connection.execute(
        "SELECT sequence FROM feeds WHERE source = ? AND resource = ?", (feed.source, feed.resource)
    ).fetchone()
    return int(row[0]) if row else 0


class Appended(msgspec.Struct, frozen=True):
    """What changes and statements came to in the outbox."""

    numbers: Mapping[int, int]  # the sequence of the first event of each, by its ``id()``
    events: int  # how many there are
    end: int  # the sequence of the last; 0 where there is none


NOTHING: Final = Appended({}, 0, 0)


def append_events(
    connection: Connection, lease: Lease, items: Sequence[Change | Statement], compose: Compose, now: datetime
) -> Appended:
    """Number and write the events of changes and statements.

    Raises:
        LeaseLost: Another process has taken the feed.
    """
    if not items:
        update_feed(connection, lease)
        return NOTHING
    appended = write_events(connection, lease.id, items, compose, now, after=last_sequence(connection, lease.id))
    update_feed(connection, lease, "sequence = ?", [appended.end])
    return appended


def write_events(
    connection: Connection,
    feed_id: int,
    items: Sequence[Change | Statement],
    compose: Compose,
    now: datetime,
    *,
    after: int,
) -> Appended:
    """Write the events of changes and statements behind a number, which the caller moves in the row of the feed."""
    sequence = after
    events: list[Event] = []
    numbers = {}
    for item in items:
        numbers[id(item)] = sequence + len(events) + 1
        events += compose(item, sequence + len(events) + 1)
    recorded_at = to_micros(now)
    connection.executemany(
        "INSERT INTO events (feed, sequence, key, id, type, change, revision, recorded_at, body, visible_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                feed_id,
                event.sequence,
                event.key,
                event.id,
                event.type,
                event.change,
                event.revision,
                recorded_at,
                event.body,
                micros(event.visible_at),
            )
            for event in events
        ),
    )
    return Appended(numbers, len(events), sequence + len(events))


def write_notes(
    connection: Connection, feed_id: int, notes: Sequence[Note], numbers: Mapping[int, int], *, via: Via, at: int
) -> None:
    """Write findings; ``numbers`` has the sequences of their changes, by the changes' ``id()``."""
    connection.executemany(
        "INSERT INTO notes (feed, key, at, via, finding, modified, fingerprint, sequence)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                feed_id,
                note.key,
                at,
                via,
                note.finding.name,
                note.modified,
                note.fingerprint,
                None if note.change is None else numbers.get(id(note.change)),
            )
            for note in notes
        ),
    )
