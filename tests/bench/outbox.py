"""The outbox in PostgreSQL, by days and as one table: adding events, reading them, and deleting a day of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any, Final

import anyio
import psycopg
from psycopg import sql

from dockbell.core.model import Feed
from dockbell.core.moment import to_micros
from dockbell.core.reading.shape import Shape
from dockbell.stores.postgres import PostgresStore
from tests.bench.table import print_table
from tests.fakes import Clock
from tests.postgres import serving
from tests.stores.pages import FEED, commit

_FEEDS: Final = [Feed(f"s{number}", "shipments") for number in range(100)]
_KEPT: Final = timedelta(days=7)
_DAYS: Final = 8
_PAGES: Final = 300
_READS: Final = 500
_BODY: Final = 290
"""Bytes of an event as it is stored, deflated."""
_ONE_TABLE: Final = """
CREATE TABLE whole (LIKE events INCLUDING IDENTITY, PRIMARY KEY (entry), UNIQUE (feed, sequence),
    FOREIGN KEY (feed) REFERENCES feeds);
CREATE INDEX events_key ON whole (feed, key, sequence);
DROP TABLE events;
ALTER TABLE whole RENAME TO events
"""
_FILL: Final = """
INSERT INTO events (feed, sequence, key, id, type, change, revision, recorded_at, body)
SELECT feeds.id, feeds.sequence + number, 'shp_' || number % 997, 'epoch-' || feeds.id || '-' || number,
    'dockbell.shipment.updated', 'updated', number, {at} + number, decode(repeat('ab', {body}), 'hex')
FROM generate_series(1, {each}) AS number, feeds WHERE source LIKE 's%' AND resource = 'shipments'
"""
_END: Final = "UPDATE feeds SET sequence = sequence + {each} WHERE source LIKE 's%' AND resource = 'shipments'"


@dataclass(slots=True)
class _Figures:
    filling: float = 0  # seconds
    page: float = 0  # milliseconds, as the following
    reading: float = 0
    end: float = 0
    pruning: float = 0  # seconds
    wal: float = 0  # MB, as the following
    room: float = 0


def measure_outbox(events: int, rounds: int) -> None:
    """Print the medians of how long it takes with so many events in the oldest day, which is deleted at the end."""
    columns: dict[str, list[_Figures]] = {"one table": [], "by days": []}
    for _ in range(rounds):
        for name, found in columns.items():
            with serving() as server:
                found.append(anyio.run(_measure, server.make_database(), events, name == "by days"))
    rows: Sequence[tuple[str, Callable[[_Figures], float], str]] = (
        ("added, events/s", lambda each: _count(events) / each.filling, ",.0f"),
        ("a page with 20 changes committed, ms", lambda each: each.page, ".2f"),
        ("100 events of a feed read, ms", lambda each: each.reading, ".2f"),
        ("none read at the end of a feed, ms", lambda each: each.end, ".2f"),
        ("the oldest day pruned, s", lambda each: each.pruning, ".2f"),
        ("WAL of that, MB", lambda each: each.wal, ",.1f"),
        ("room of the outbox afterwards, MB", lambda each: each.room, ",.0f"),
    )
    title = f"{events:,} events in the oldest of {_DAYS} days, a tenth of that in each other; {len(_FEEDS)} feeds"
    print_table(
        (title, *columns),
        *(
            (what, *(format(median(map(figure, found)), style) for found in columns.values()))
            for what, figure, style in rows
        ),
    )


def _count(events: int) -> int:
    """Return how many there are in all."""
    return events + (_DAYS - 1) * (events // 10)


async def _measure(url: str, events: int, by_days: bool) -> _Figures:  # anyio passes no names
    clock, figures = Clock(), _Figures()
    store = await PostgresStore.open(url, now=clock, epoch="epoch", shared=False)
    try:
        with closing(psycopg.connect(url, autocommit=True)) as server:
            if not by_days:
                server.execute(_ONE_TABLE)
            await store.add_feeds(_FEEDS)
            state = await store.feed(FEED).open()
            await store.feed(FEED).save_shape(Shape(("/id",), None, None), proven=True)
            last = 0
            for day in range(_DAYS):
                if by_days:
                    await store.retention.prune_events(clock() - _KEPT, [])
                each = (events // 10 if day else events) // len(_FEEDS)
                last += each
                values = {"at": sql.Literal(to_micros(clock())), "each": sql.Literal(each)}
                began_at = time.perf_counter()
                server.execute(sql.SQL(_FILL).format(body=sql.Literal(_BODY), **values))
                figures.filling += time.perf_counter() - began_at
                server.execute(sql.SQL(_END).format(**values))
                clock.pass_(86400)
            server.execute("VACUUM ANALYZE")
            server.execute("CHECKPOINT")
            clock.pass_(-86400)
            numbers = iter(range(_PAGES))

            async def add() -> None:
                number = next(numbers)
                await commit(store, state, *({"id": f"shp_{each}", "x": number} for each in range(20)))

            figures.page = await _time(_PAGES, add)
            figures.reading = await _time(_READS, lambda: store.read_events(_FEEDS[7], last - 100, 100))
            figures.end = await _time(_READS, lambda: store.read_events(_FEEDS[7], last, 100))
            clock.pass_(86400)
            figures.pruning, figures.wal = await _prune(store, server, clock, events, by_days=by_days)
            tables = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('events')"
            size = tables if by_days else "SELECT pg_total_relation_size('events')"
            ((room,),) = server.execute(sql.SQL(size)).fetchall()
            figures.room = float(room) / 1e6
    finally:
        await store.aclose()
    return figures


async def _prune(
    store: PostgresStore, server: psycopg.Connection[Any], clock: Clock, events: int, *, by_days: bool
) -> tuple[float, float]:
    """Return how many seconds it takes, and how many MB of WAL; with VACUUM where that has something to do."""
    before = server.execute("SELECT pg_current_wal_lsn()").fetchone()
    began_at = time.perf_counter()
    # With a limit the events are deleted one by one.
    pruned = await store.retention.prune_events(clock() - _KEPT, [], None if by_days else events)
    if not by_days:
        server.execute("VACUUM events")
    seconds = time.perf_counter() - began_at
    assert pruned == events, (pruned, events)
    ((wal,),) = server.execute("SELECT pg_current_wal_lsn() - %s :: pg_lsn", before).fetchall()
    return seconds, float(wal) / 1e6


async def _time(times: int, call: Callable[[], Awaitable[object]]) -> float:
    """Return the median of how many milliseconds a call takes."""
    took = []
    for _ in range(times):
        began_at = time.perf_counter()
        await call()
        took.append(time.perf_counter() - began_at)
    return 1000 * median(took)
