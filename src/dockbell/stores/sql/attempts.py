"""Statements about attempts to deliver: a ring that has the last of them, of all sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Final

from dockbell.core.model import Feed
from dockbell.core.moment import EPOCH, from_micros, to_micros
from dockbell.core.publishing.settlement import Attempt, Verdict
from dockbell.stores.sql.connection import FEED_ID, Connection, moment, transaction
from dockbell.stores.sql.dialect import SKIP_LOCKED

_DEFERRED: Final = "not counted"
"""What stores hold for :attr:`Verdict.WAIT`; older processes on the same database know no other word."""


def add_attempts(connection: Connection, sink: str, attempts: Sequence[Attempt]) -> None:
    """Write attempts in a transaction that is open."""
    connection.executemany(
        "INSERT INTO attempts (sink, feed, key, sequence, number, began_at, took, verdict, error, status, answer,"
        f" next_at, is_replay) VALUES (?, {FEED_ID}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                sink,
                each.feed.source,  # astuple() copies deeply: a third of all this
                each.feed.resource,
                each.key,
                each.sequence,
                each.number,
                to_micros(each.began_at),
                to_micros(EPOCH + each.took),
                _DEFERRED if each.verdict is Verdict.WAIT else each.verdict,
                each.error,
                each.status,
                each.answer,
                None if each.next_at is None else to_micros(each.next_at),
                each.is_replay,
            )
            for each in attempts
        ),
    )


def trim_attempts(connection: Connection, keep: int) -> int:
    """Delete all but the last attempts; return how many. What another process is deleting is left to it."""
    with transaction(connection):
        return connection.execute(
            "DELETE FROM attempts WHERE id IN (SELECT id FROM attempts"
            f" WHERE id <= (SELECT max(id) FROM attempts) - ? ORDER BY id {SKIP_LOCKED})",
            (keep,),
        ).rowcount


def read_attempts(connection: Connection, feed: Feed, key: str, limit: int) -> Mapping[str, Sequence[Attempt]]:
    """Return the last attempts to deliver the events of a record, by sink, oldest first; at most so many in all."""
    found: dict[str, list[Attempt]] = {}
    rows = connection.execute(
        "SELECT sink, sequence, number, began_at, took, verdict, error, status, answer, next_at, is_replay"
        f" FROM attempts WHERE feed = {FEED_ID} AND key = ? ORDER BY id DESC LIMIT ?",
        (*astuple(feed), key, limit),
    ).fetchall()
    for sink, sequence, number, began_at, took, verdict, error, status, answer, next_at, is_replay in reversed(rows):
        attempt = Attempt(
            feed,
            key,
            sequence,
            number,
            from_micros(began_at),
            from_micros(took) - EPOCH,
            Verdict.WAIT if verdict == _DEFERRED else Verdict(verdict),
            error,
            status,
            answer,
            moment(next_at),
            bool(is_replay),
        )
        found.setdefault(sink, []).append(attempt)
    return found


def forget_answers(connection: Connection, feed_id: int, key: str | None = None) -> None:
    """Erase what receivers have answered to the events of a record, or of a feed, in a transaction that is open."""
    for table in ("attempts", "dead_letters"):
        connection.execute(
            f"UPDATE {table} SET answer = '' WHERE feed = :feed AND answer <> '' AND (:key IS NULL OR key = :key)",
            {"feed": feed_id, "key": key},
        )
