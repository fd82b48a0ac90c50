"""Measure a large sandbox by hand: ``python tests/sandbox/measure.py [RECORDS]`` (300,000 when left out)."""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

import httpx

from dockbell.sandbox import Sandbox, SandboxOptions, serve

KEY = {"Authorization": "Bearer sandbox"}
ROUNDS = 200

Get = Callable[[str], Awaitable[httpx.Response]]


async def measure(records: int) -> None:
    started = time.perf_counter()
    sandboxes = {"keyset": Sandbox(SandboxOptions(records=records, requests_per_minute=0))}
    built = time.perf_counter() - started
    print(f"built {records:,} records in {built:.1f} s, {_memory():.0f} MB at most")
    sandboxes["offset"] = Sandbox(SandboxOptions(records=records, requests_per_minute=0, cursors="offset"))
    gc.collect()
    for kind, sandbox in sandboxes.items():
        print(f"\n{kind} cursors, page of 200, in process, ms: median, p99, most")
        transport = httpx.ASGITransport(sandbox.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sandbox", headers=KEY) as client:
            for label, path in _paths(sandbox).items():
                await _time(label, client.get, await _deep(client.get, path))
    sandbox = sandboxes["keyset"]
    started = time.perf_counter()
    made = sandbox.step(10_000)
    print(f"\n{made / (time.perf_counter() - started):,.0f} changes/s by step(10000)")
    started = time.perf_counter()
    made = sandbox.edit("stock", 50_000)
    print(f"{made:,} stock levels changed on one tick in {time.perf_counter() - started:.2f} s")
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY) as client:
        print("\nover HTTP on loopback, client in the same process, ms: median, p99, most")
        await _time("stock", client.get, "/v1/stock?limit=200")
        await _time("one warehouse", client.get, "/v1/warehouses?limit=1")


def _paths(sandbox: Sandbox) -> dict[str, str]:
    tracking_number = next(
        row.terms[0] for row in sandbox._world.tables["packages"].rows.values() if row.terms[0] is not None
    )
    queries = {
        "stock": "stock",
        "items (active)": "items",
        "shipments": "shipments",
        "shipments updated_since, all": "shipments?updated_since=2020-01-01T00:00:00Z",
        "packages updated_since, a month": "packages?updated_since=2025-12-01T00:00:00Z",
        "shipments in the status picking": "shipments?status=picking",
        "packages by tracking_number": "packages?" + urlencode({"tracking_number": tracking_number}),
        "items by manufacturer_sku": "items?status=all&" + urlencode({"manufacturer_sku": "ÆRØ-LMP/14"}),
        "items with stock": "items?expand=stock",
        "shipments with everything": "shipments?expand=packages,line_items,invoices",
    }
    return {label: f"/v1/{query}{'&' if '?' in query else '?'}limit=200" for label, query in queries.items()}


async def _deep(get: Get, path: str) -> str:
    """Return the path of the middle page of a listing of any length, found by walking at most 150 pages."""
    visited = [path]
    while len(visited) < 150:
        cursor = (await get(visited[-1])).json()["next_cursor"]
        if cursor is None:
            return visited[len(visited) // 2]
        visited.append(f"{path}&{urlencode({'cursor': cursor})}")
    return visited[-1]


async def _time(label: str, get: Get, path: str) -> None:
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        response = await get(path)
        times.append((time.perf_counter() - started) * 1000)
        assert response.status_code == httpx.codes.OK, response.text
    times.sort()
    print(f"  {label:32} {statistics.median(times):7.2f} {times[ROUNDS * 99 // 100]:7.2f} {times[-1]:7.2f}")


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000))
