"""How many pages processes commit to one database and how many events they deliver from it, beside one on SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import ClockSource, Feed, Page, Via
from dockbell.core.publishing.event import Composer
from dockbell.ports import Store
from dockbell.stores.postgres import PostgresStore
from tests.bench.fleet.daemons import SECRET, wait_until
from tests.bench.fleet.http import ask
from tests.bench.fleet.receiver import Account, serve_receiver
from tests.bench.processes import run_alone
from tests.bench.processes import serving as serving_by
from tests.bench.table import print_table
from tests.fakes import NOON
from tests.postgres import Server, serving
from tests.services import Daemon
from tests.stores.pages import make_detector
from tests.stores.places import Place, open_store, url_of

PROCESSES: Final = (1, 2, 3, 4)
KINDS: Final = {"unchanged": 0, "20 changed": 20, "200 changed": 200}
SECONDS: Final = 5.0
_STARTED_SECONDS: Final = 5.0
_FEEDS: Final = 4
_PAGE: Final = 200
_SOURCES: Final = 24
_FILLING: Final = "x" * 300
_CONFIG: Final = """
name = "acme"

[store]
url = "{store}"

[source_defaults]
base_url = "http://127.0.0.1:1"
api_key = "key"
paused = true

[resources.shipments]

[sinks.erp]
type = "webhook"
url = "{receiver}/hook"
secret = "{secret}"
start = "beginning"
"""


class Table:
    """One feed, of whose records so many are changed from page to page."""

    def __init__(self, store: Store, source: str) -> None:
        self._feed = Feed(source, "shipments")
        self._store = store
        self._detect = make_detector().detect
        self._compose = Composer(self._feed, name="acme", singular="shipment", epoch="epoch")
        self._first = -_PAGE
        self._next = 0
        self.renew()

    async def open(self) -> None:
        await self._store.add_feeds([self._feed])
        await self._store.feed(self._feed).open()

    def renew(self) -> None:
        """Have the next page show other records, all of them new."""
        self._first += _PAGE
        self._versions = [0] * _PAGE
        self._raws = [_render(self._first + number, 0) for number in range(_PAGE)]

    async def commit(self, changes: int) -> None:
        """Commit a page of which so many records have changed; the first time all are new."""
        for _ in range(changes):
            number = self._next = (self._next + 1) % _PAGE
            self._versions[number] += 1
            self._raws[number] = _render(self._first + number, self._versions[number])
        page = Page(tuple(self._raws), None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
        detect = partial(self._detect, page, ReadContext(Via.POLL, NOON))
        await self._store.feed(self._feed).commit_page(detect, self._compose, via=Via.POLL)


def _render(number: int, version: int) -> bytes:
    return b'{"id":"shp_%07d","status":"packed","version":%d,"note":"%b"}' % (number, version, _FILLING.encode())


async def _open(place: Place) -> Store:
    if isinstance(place, Path):
        return await open_store(place, now=lambda: NOON)
    return await PostgresStore.open(place, now=lambda: NOON, epoch="epoch", shared=True)


def commit_pages(place: Place, process: int, changes: int, begins: float) -> tuple[int, float]:
    """Return how many pages a process has committed in the time, and its CPU seconds."""
    return anyio.run(_commit_pages, place, process, changes, begins)


async def _commit_pages(place: Place, process: int, changes: int, begins: float) -> tuple[int, float]:
    store, count = await _open(place), 0
    tables = [Table(store, f"s{process}-{number}") for number in range(_FEEDS)]
    for table in tables:
        await table.open()
        await table.commit(0)
    assert time.monotonic() < begins, "it took too long to start"
    await anyio.sleep(begins - time.monotonic())
    before = time.process_time()

    async def go_on(table: Table) -> None:
        nonlocal count
        while time.monotonic() < begins + SECONDS:
            await table.commit(changes)
            count += 1

    async with anyio.create_task_group() as group:
        for table in tables:
            group.start_soon(go_on, table)
    cpu = time.process_time() - before
    await store.aclose()
    return count, cpu


def fill(place: Place, events: int) -> None:
    """Fill a new store with records and an event of each."""
    anyio.run(_fill, place, events)


async def _fill(place: Place, events: int) -> None:
    store = await _open(place)
    for number in range(_SOURCES):
        table = Table(store, f"s{number}")
        await table.open()
        for _ in range(max(1, events // _SOURCES // _PAGE)):
            await table.commit(0)
            table.renew()
    await store.aclose()


@contextmanager
def _running(config: str, processes: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(processes):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            (folder / "dockbell.toml").write_text(config)
            stack.enter_context(Daemon(folder)).start()
        yield


def measure_deliveries(place: Place, processes: int, events: int) -> float:
    """Return how many events a second ``dockbell run`` delivers, so many of them together, once all are at work."""
    run_alone(fill, place, events)
    with serving_by(serve_receiver, 0.0) as receiver:
        config = _CONFIG.format(store=url_of(place), receiver=receiver, secret=SECRET)
        config += "".join(f"[sources.s{number}]\n" for number in range(_SOURCES))
        seen: list[tuple[float, int]] = []

        def has_all() -> bool:
            seen.append((time.monotonic(), ask(f"{receiver}/count", int)))
            return seen[-1][1] >= events

        with _running(config, processes):
            assert wait_until(has_all, 300, every=0.1) is not None, seen[-1]
        account = ask(f"{receiver}/testimony", Account)
        assert (account.gaps, account.doubles, account.disorder) == (0, 0, 0)
    (began, first), *_ = [each for each in seen if each[1] > events * 0.2]
    ended, last = next(each for each in seen if each[1] >= events * 0.8)
    return (last - first) / (ended - began)


def measure_throughput(events: int, rounds: int) -> None:
    """Print pages and deliveries a second."""
    commits: list[tuple[str, ...]] = []
    deliveries: list[tuple[str, ...]] = []
    with serving(synchronous_commit="on", fsync="on", full_page_writes="on", autovacuum="on") as server:
        for name, processes in (("SQLite", 1), *((f"PostgreSQL, {each}", each) for each in PROCESSES)):
            cells: list[str] = []
            for changes in KINDS.values():
                found = [_commit_together(name, server, processes, changes) for _ in range(rounds)]
                pages, cpu = (median(each[index] for each in found) for index in (0, 1))
                cells += [f"{pages:,.0f}", f"{cpu:.1f}"]
            commits.append((name, *cells))
            rates = [_deliver_together(name, server, processes, events) for _ in range(rounds)]
            deliveries.append((name, f"{median(rates):,.0f}"))
    heads = [head for kind in KINDS for head in (f"{kind}, pages/s", "CPU/page, ms")]
    print_table((f"processes, pages of {_PAGE}", *heads), *commits)
    print_table((f"processes, {events:,} events to a webhook", "events/s"), *deliveries)


@contextmanager
def _placing(name: str, server: Server) -> Iterator[Place]:
    with TemporaryDirectory() as folder:
        yield Path(folder, "dockbell.db") if name == "SQLite" else server.make_database()


def _commit_together(name: str, server: Server, processes: int, changes: int) -> tuple[float, float]:
    """Return the pages a second of all processes, and the milliseconds of CPU that each costs the process."""
    with (
        _placing(name, server) as place,
        ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool,
    ):
        begins = time.monotonic() + _STARTED_SECONDS + processes
        done = [pool.submit(commit_pages, place, number, changes, begins) for number in range(processes)]
        counts, cpus = zip(*(each.result() for each in done), strict=True)
    return sum(counts) / SECONDS, 1000 * sum(cpus) / sum(counts)


def _deliver_together(name: str, server: Server, processes: int, events: int) -> float:
    with _placing(name, server) as place:
        return measure_deliveries(place, processes, events // _SOURCES // _PAGE * _SOURCES * _PAGE)
