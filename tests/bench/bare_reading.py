"""The bare loop beside a pass: fetches each page, parses it, hashes its records, and stores or compares the hashes.

What a careful person would write in an hour with the same libraries, and nothing of dockbell: no canonical form, no
dates, no events, no budget, no retries, no deletions.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx
import msgspec

from tests.bench.processes import Cost, Meter

POLLED: Final = "shipments"
POLLS: Final = 200
UNPOLLED: Final = ("stock", "warehouses")
_QUERIES: Final[dict[str, dict[str, str]]] = {
    "shipments": {},
    "packages": {},
    "items": {"status": "all"},
    "stock": {},
    "warehouses": {},
}
_SCHEMA: Final = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS records (
        id INTEGER PRIMARY KEY, resource TEXT, key TEXT, hash BLOB, UNIQUE (resource, key)
    );
    CREATE TABLE IF NOT EXISTS bodies (record INTEGER PRIMARY KEY, body BLOB);
    CREATE TABLE IF NOT EXISTS positions (resource TEXT PRIMARY KEY, since TEXT);
"""
_PAGE: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RECORDS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()

_Rows: TypeAlias = Sequence[tuple[str, bytes, bytes]]
"""Key, hash and raw JSON of each record of a page."""


def read_first(url: str, path: Path) -> Cost:
    """Read everything and store it, one transaction a page."""
    return asyncio.run(_read_all(url, path, _store))


def read_again(url: str, path: Path) -> Cost:
    """Read everything and compare it with what :func:`read_first` stored."""
    return asyncio.run(_read_all(url, path, _compare))


def read_cycle(url: str, path: Path) -> Cost:
    """Read what cannot be polled and compare it with what :func:`read_first` stored."""
    return asyncio.run(_read_all(url, path, _compare, UNPOLLED))


def read_changing_cycle(url: str, path: Path) -> Cost:
    """Read what cannot be polled and store what differs, one transaction a page."""
    return asyncio.run(_read_all(url, path, _update, UNPOLLED))


def read_spread_cycles(url: str, path: Path, every: float, cycles: int) -> list[Cost]:
    """Read what cannot be polled again and again, the pages spread evenly over so many seconds; store what differs."""
    return asyncio.run(_read_spread(url, path, every, cycles))


def poll(url: str, path: Path) -> Cost:
    """Ask again and again for what was modified in the last minute that saw a change, compare it, and store that."""
    return asyncio.run(_poll(url, path))


async def _poll(url: str, path: Path) -> Cost:
    async with _opening(url, path) as (connection, client):
        dates = [max(_ANY.decode(raw)["updated_at"] for raw in page) async for page in _read_pages(client, POLLED)]
        since = (datetime.fromisoformat(max(dates)) - timedelta(minutes=1)).isoformat()
        count, meter = 0, Meter()
        for _ in range(POLLS):
            async for records in _read_pages(client, POLLED, updated_since=since):
                _compare(connection, POLLED, _take(records))
                count += len(records)
            connection.execute(
                "INSERT INTO positions VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET since = excluded.since",
                (POLLED, since),
            )
        return meter.read(count, pages=POLLS, written=connection.total_changes)


async def _read_all(
    url: str,
    path: Path,
    use: Callable[[sqlite3.Connection, str, _Rows], None],
    resources: Iterable[str] = _QUERIES,
) -> Cost:
    async with _opening(url, path) as (connection, client):
        count = pages = 0
        meter = Meter()
        for resource in resources:
            async for records in _read_pages(client, resource):
                use(connection, resource, _take(records))
                count += len(records)
                pages += 1
        return meter.read(count, pages=pages, written=connection.total_changes)


async def _read_spread(url: str, path: Path, every: float, cycles: int) -> list[Cost]:
    costs: list[Cost] = []
    pace = 0.0
    async with _opening(url, path) as (connection, client):
        for _ in range(1 + cycles):  # in the first one it learns how many pages there are
            count, pages, due, meter = 0, 0, time.perf_counter(), Meter()
            for resource in UNPOLLED:
                async for records in _read_pages(client, resource):
                    _update(connection, resource, _take(records))
                    count, pages, due = count + len(records), pages + 1, due + pace
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
            costs.append(meter.read(count, pages=pages, written=connection.total_changes))
            pace = every / pages
    return costs[1:]


@asynccontextmanager
async def _opening(url: str, path: Path) -> AsyncIterator[tuple[sqlite3.Connection, httpx.AsyncClient]]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(_SCHEMA)
    headers = {"authorization": "Bearer sandbox"}
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, trust_env=False) as client:
        yield connection, client


def _take(records: Iterable[msgspec.Raw]) -> _Rows:
    return [(_ANY.decode(raw)["id"], blake2b(raw, digest_size=16).digest(), bytes(raw)) for raw in records]


async def _read_pages(client: httpx.AsyncClient, resource: str, **query: str) -> AsyncIterator[list[msgspec.Raw]]:
    params: dict[str, Any] = {"limit": 200, **_QUERIES[resource], **query}
    while True:
        response = await client.get(f"/v1/{resource}", params=params)
        page = _PAGE.decode(response.raise_for_status().content)
        yield _RECORDS.decode(page[resource])
        params["cursor"] = _ANY.decode(page["next_cursor"])
        if params["cursor"] is None:
            return


def _store(connection: sqlite3.Connection, resource: str, rows: _Rows) -> None:
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM records").fetchone()
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO records VALUES (?, ?, ?, ?)",
        ((row, resource, key, hash_) for row, (key, hash_, _) in enumerate(rows, start=last + 1)),
    )
    connection.executemany(
        "INSERT INTO bodies VALUES (?, ?)", ((row, raw) for row, (_, _, raw) in enumerate(rows, start=last + 1))
    )
    connection.execute("COMMIT")


def _compare(connection: sqlite3.Connection, resource: str, rows: _Rows) -> None:
    assert not [*_find_differing(connection, resource, rows)]


def _update(connection: sqlite3.Connection, resource: str, rows: _Rows) -> None:
    differing = [*_find_differing(connection, resource, rows)]
    if differing:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("UPDATE records SET hash = ? WHERE id = ?", [(each[1], each[0]) for each in differing])
        connection.executemany(
            "UPDATE bodies SET body = ? WHERE record = ?", [(each[2], each[0]) for each in differing]
        )
        connection.execute("COMMIT")


def _find_differing(connection: sqlite3.Connection, resource: str, rows: _Rows) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the row, the hash and the raw JSON of each record that is not as stored."""
    marks = ", ".join("?" * len(rows))
    stored = connection.execute(
        f"SELECT key, id, hash FROM records WHERE resource = ? AND key IN ({marks})",  # noqa: S608  # question marks only
        (resource, *(key for key, _, _ in rows)),
    )
    known = {key: (row, hash_) for key, row, hash_ in stored}
    assert len(known) == len(rows)
    return ((known[key][0], hash_, raw) for key, hash_, raw in rows if known[key][1] != hash_)
