"""The writing of events and of findings, inside the transaction of what they tell of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from dockbell.core.comparing.page_diff import Note
from dockbell.core.model import Change, Event, Statement, Via
from dockbell.core.moment import to_micros
from dockbell.ports import Compose
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.transaction import micros, upsert

PUT_BODY: Final = upsert("bodies", ["record"], "body")


def last_sequence(connection: Connection, feed_id: int) -> int:
    """Return the number of a feed's last event."""
    (sequence,) = connection.execute("SELECT sequence FROM feeds WHERE id = ?", (feed_id,)).fetchone()
    return int(sequence)


def append_events(
    connection: Connection,
    feed_id: int,
    items: Sequence[Change | Statement],
    compose: Compose,
    now: datetime,
) -> dict[int, int]:
    """Number and write the events of changes and statements; return the first sequence of each, by its ``id()``."""
    if not items:
        return {}
    sequence = last_sequence(connection, feed_id)
    events: list[Event] = []
    numbers = {}
    for item in items:
        numbers[id(item)] = sequence + len(events) + 1
        events += compose(item, sequence + len(events) + 1)
    recorded_at = to_micros(now)
    connection.executemany(
        "INSERT INTO events (feed, sequence, key, id, type, change, revision, recorded_at, body, made_at)"
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
                micros(event.made_at),
            )
            for event in events
        ),
    )
    connection.execute("UPDATE feeds SET sequence = ? WHERE id = ?", (sequence + len(events), feed_id))
    return numbers


def write_notes(
    connection: Connection,
    feed_id: int,
    notes: Sequence[Note],
    numbers: Mapping[int, int],
    *,
    via: Via,
    at: int,
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
