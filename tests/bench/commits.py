"""What a page commit, a poll and a settlement cost in PostgreSQL, with few feeds in the store and with many."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, cast

import anyio
import psycopg

from dockbell.core.publishing.settlement import Blocked, DeadLetter, Settlement
from dockbell.core.reading.listing_profile import STEADY_RUNS
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.postgres import PostgresStore
from tests.bench.processes import run_alone
from tests.bench.table import print_table
from tests.fakes import NOON, Clock, FakeSource
from tests.postgres import Server, serving
from tests.rig import PACKAGES, Rig
from tests.stores.pages import FEED, commit
from tests.wires import wired

_FEEDS: Final = (1, 100, 10_000)
_RECORDS: Final = 20
"""Of each of the other feeds."""
_PAGE: Final = 200
_PAGES: Final = 10
_WARM: Final = 3
_COUNTED: Final = 3
_TURNS: Final = 5
_SINK: Final = "erp"
_OTHERS: Final = (
    (
        "INSERT INTO feeds (source, resource, last_row)"
        " SELECT 's' || number, 'shipments', %(records)s FROM generate_series(1, %(feeds)s) AS number"
    ),
    (
        "INSERT INTO records (feed, row, key, raw_hash, fingerprint, modified, revision) SELECT id, row, 'key-' || row,"
        " decode(md5(id || '-' || row), 'hex'), decode(md5(id || '-' || row), 'hex'), 0, 0"
        " FROM feeds, generate_series(1, %(records)s) AS row"
    ),
    # As large as those of the page: others would leave a hole at the end of each block, and the page would fill these.
    "INSERT INTO bodies (feed, row, body) SELECT feed, row, decode(repeat('7b', 46), 'hex') FROM records",
    "INSERT INTO positions (sink, feed, sequence, began_at) SELECT %(sink)s, id, 0, 0 FROM feeds",
)
_ANALYSE: Final = "VACUUM ANALYZE"
"""As the server does by itself within a minute; before, it checks references by the plans of empty tables."""
_WRITTEN: Final = "SELECT pg_current_wal_lsn() - '0/0'"
_SETTINGS: Final = {
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "fsync": "on",
    "full_page_writes": "on",
}


class Work:
    """What a process does with one feed, time and again."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._round = 0
        self._records = 0
        self._clock = Clock()
        self._rig = Rig(cast("Any", store), self._clock, FakeSource(self._clock))

    async def begin(self) -> None:
        """Fill the feed, and the one that is polled."""
        self._state = await self._store.feed(FEED).open()
        self._round = self._state.sequence
        self._records = await self._store.feed(FEED).last_row()
        for _ in range(_PAGES):
            await self.add()
        for key in "abcde":
            self._rig.source.put(key, status="open")
        await self._rig.read_whole()
        for _ in range(STEADY_RUNS):  # then the profile of its listing is stored no more
            await self._rig.poll(after=60)
        await self._store.sink(_SINK).enroll("beginning")  # as in the other feeds, where it is known

    async def change(self, count: int) -> None:
        """Commit a page of which so many records have changed."""
        self._round += 1
        await self._commit([_record(number, self._round if number < count else 0) for number in range(_PAGE)])

    async def restore(self) -> None:
        """Commit the page as it was at first."""
        await self.change(0)

    async def add(self) -> None:
        """Commit a page of new records."""
        first, self._records = self._records, self._records + _PAGE
        await self._commit([_record(number, 0) for number in range(first, first + _PAGE)])

    async def poll(self) -> None:
        """Poll once, and find nothing."""
        await self._rig.poll()

    async def settle(self) -> None:
        """Save what became of a batch of events: most were taken, some are blocked, one is dead."""
        self._round += 1
        feeds = [FEED, PACKAGES]
        entries = [Blocked(FEED, f"key-{number}", self._round, 1, NOON, "HTTP 503") for number in range(10)]
        await self._store.sink(_SINK).settle(
            Settlement(
                positions=dict.fromkeys(feeds, self._round),
                blocked={(FEED, each.key): each for each in entries},
                freed={(FEED, f"key-{number}") for number in range(10, 20)},
                dead=[DeadLetter(FEED, "key-20", self._round, 3, NOON, "HTTP 422")],
                origins=dict.fromkeys(feeds, 0),
            )
        )

    async def _commit(self, records: list[Mapping[str, Any]]) -> None:
        await commit(self._store, self._state, *records, at=self._round)


def _record(number: int, version: int) -> Mapping[str, Any]:
    return {"id": f"key-{number}", "version": version, "text": f"{number:06}" * 80}


ACTS: Final[Mapping[str, Callable[[Work], Awaitable[None]]]] = {
    "page of 200, unchanged": Work.restore,
    "1 changed": lambda work: work.change(1),
    "20 changed": lambda work: work.change(20),
    "200 changed": lambda work: work.change(200),
    "200 new": Work.add,
    "idle poll": Work.poll,
    "settlement of 32": Work.settle,
}


@dataclass(frozen=True, slots=True)
class _Price:
    """What one act costs."""

    trips: float = 0
    statements: float = 0
    milliseconds: float = 0
    kilobytes: float = 0  # of write-ahead log


def measure_commits(rounds: int) -> None:
    """Print what each act costs: round trips, statements, time and write-ahead log."""
    counted: dict[int, Mapping[str, _Price]] = {}
    turns: dict[int, list[Mapping[str, _Price]]] = {feeds: [] for feeds in _FEEDS}
    with serving(**_SETTINGS) as server:
        for feeds in _FEEDS:
            counted[feeds] = anyio.run(_count, server, feeds)
        for feeds in _TURNS * _FEEDS:
            turns[feeds].append(run_alone(time_acts, server.make_database(), feeds, rounds))
    timed = {feeds: {act: _find_median([each[act] for each in turns[feeds]]) for act in ACTS} for feeds in _FEEDS}
    columns: Sequence[tuple[str, Mapping[int, Mapping[str, _Price]], Callable[[_Price], float], str]] = (
        ("round trips", counted, lambda price: price.trips, ".0f"),
        ("statements", counted, lambda price: price.statements, ".0f"),
        ("ms", timed, lambda price: price.milliseconds, ".1f"),
        ("WAL, kB", timed, lambda price: price.kilobytes, ".1f"),
    )
    print_table(
        ("feeds in the store", *(f"{head}: {feeds:,}" for head, *_ in columns for feeds in _FEEDS)),
        *(
            (act, *(format(show(prices[feeds][act]), style) for _, prices, show, style in columns for feeds in _FEEDS))
            for act in ACTS
        ),
    )


def _find_median(prices: Sequence[_Price]) -> _Price:
    return sorted(prices, key=lambda price: price.milliseconds)[len(prices) // 2]


async def _count(server: Server, feeds: int) -> Mapping[str, _Price]:
    prices = {}
    with wired(server.folder) as wire:
        async with _working(wire.lead(server.make_database()), feeds) as work:
            for name, act in ACTS.items():
                for _ in range(_WARM):
                    await act(work)
                before = wire.trips, wire.statements
                for _ in range(_COUNTED):
                    await act(work)
                trips, statements = wire.trips - before[0], wire.statements - before[1]
                prices[name] = _Price(trips / _COUNTED, statements / _COUNTED)
    return prices


def time_acts(url: str, feeds: int, rounds: int) -> Mapping[str, _Price]:
    """Return how long each act takes, in the median of the rounds, and what it writes."""
    return anyio.run(_time, url, feeds, rounds)


async def _time(url: str, feeds: int, rounds: int) -> Mapping[str, _Price]:
    prices = {}
    async with _working(url, feeds) as work:
        with closing(psycopg.connect(url, autocommit=True)) as beside:
            beside.execute("CHECKPOINT")
            for name, act in ACTS.items():
                times = []
                for number in range(_WARM + rounds):
                    if number == _WARM:
                        ((began,),) = beside.execute(_WRITTEN).fetchall()
                    at = time.perf_counter()
                    await act(work)
                    times.append(time.perf_counter() - at)
                ((ended,),) = beside.execute(_WRITTEN).fetchall()
                prices[name] = _Price(
                    milliseconds=1000 * median(times[_WARM:]), kilobytes=float(ended - began) / rounds / 1000
                )
    return prices


@asynccontextmanager
async def _working(url: str, feeds: int) -> AsyncIterator[Work]:
    """Yield the work in a store with so many feeds."""
    store = await PostgresStore.open(url, now=lambda: NOON)
    try:
        with closing(psycopg.connect(url, autocommit=True)) as beside:
            for statement in _OTHERS:
                beside.execute(statement, {"feeds": feeds - 1, "records": _RECORDS, "sink": _SINK})
            work = Work(store)
            await work.begin()
            beside.execute(_ANALYSE)
        yield work
    finally:
        await store.aclose()
