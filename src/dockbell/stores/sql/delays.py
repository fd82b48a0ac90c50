"""Statements about measured delays: a row for each feed, sink and quarter of an hour with deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from dockbell.core.delays import MeasuredDelays
from dockbell.core.model import Feed
from dockbell.core.moment import EPOCH, from_micros, to_micros
from dockbell.stores.sql.connection import Connection, transaction


def add_delays(connection: Connection, measured: Sequence[MeasuredDelays]) -> None:
    """Add delays to those that are stored of their quarters; of feeds that the store does not know none are kept."""
    with transaction(connection):
        for each in measured:
            # The sums first: that locks the row, so that its buckets can be read and written again.
            found = connection.execute(
                "INSERT INTO delays (began_at, feed, sink, waited, predicted, buckets)"
                " SELECT ?, id, ?, ?, ?, '{}' FROM feeds WHERE source = ? AND resource = ?"
                " ON CONFLICT (began_at, feed, sink) DO UPDATE SET waited = delays.waited + excluded.waited,"
                " predicted = delays.predicted + excluded.predicted RETURNING feed, buckets",
                (
                    to_micros(each.began_at),
                    each.sink,
                    to_micros(EPOCH + each.waited),
                    None if each.predicted is None else to_micros(EPOCH + each.predicted),
                    each.feed.source,
                    each.feed.resource,
                ),
            ).fetchall()
            for feed_id, buckets in found:
                total = Counter(_read(buckets)) + Counter(each.buckets)
                connection.execute(
                    "UPDATE delays SET buckets = ? WHERE began_at = ? AND feed = ? AND sink = ?",
                    (msgspec.json.encode(total).decode(), to_micros(each.began_at), feed_id, each.sink),
                )


def read_delays(connection: Connection, since: datetime, feed: Feed | None = None) -> Sequence[MeasuredDelays]:
    """Return the delays of the quarters from then on, the oldest first; of one feed, or of all."""
    of_one = "" if feed is None else " AND source = ? AND resource = ?"
    names = () if feed is None else (feed.source, feed.resource)
    return [
        MeasuredDelays(
            Feed(source, resource),
            sink,
            from_micros(began_at),
            _read(buckets),
            from_micros(waited) - EPOCH,
            None if predicted is None else from_micros(predicted) - EPOCH,
        )
        for source, resource, sink, began_at, buckets, waited, predicted in connection.execute(
            "SELECT source, resource, sink, began_at, buckets, waited, predicted FROM delays"
            f" JOIN feeds ON feeds.id = feed WHERE began_at >= ?{of_one} ORDER BY began_at, feed, sink",
            (to_micros(since), *names),
        )
    ]


def prune_delays(connection: Connection, before: datetime, limit: int) -> int:
    """Delete up to ``limit`` rows of quarters that began before then; return how many."""
    with transaction(connection):
        return connection.execute(
            "DELETE FROM delays WHERE (began_at, feed, sink) IN"
            " (SELECT began_at, feed, sink FROM delays WHERE began_at < ? LIMIT ?)",
            (to_micros(before), limit),
        ).rowcount


def _read(buckets: str) -> dict[int, int]:
    return msgspec.json.decode(buckets, type=dict[int, int])
