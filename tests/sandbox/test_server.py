from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from dockbell.sandbox import Sandbox, SandboxOptions, serve

if TYPE_CHECKING:
    from tests.sandbox.conftest import Build

KEY = {"Authorization": "Bearer sandbox"}


async def test_it_answers_over_a_real_connection(build: Build) -> None:
    sandbox = build()
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        response = await client.get("/v1/shipments?limit=200&expand=packages,line_items,invoices")
        assert len(response.json()["shipments"]) == len(sandbox.records("shipments"))
        assert response.headers.get_list("date") == ["Sat, 21 Nov 2026 02:30:00 GMT"]
        assert response.headers["x-ratelimit-remaining"] == "299"
        created = await client.post("/v1/sales-orders", json={})
        assert created.json()["shipment_id"] in sandbox.records("shipments")
        assert (await client.head("/v1/stock")).status_code == 405


async def test_it_lives_while_it_is_served() -> None:
    sandbox = Sandbox(SandboxOptions(records=15, activity=500.0))
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        with anyio.fail_after(10):
            while not (await client.get("/sandbox/changes")).json()["changes"]:
                pass


async def test_leaving_frees_the_port_and_leaves_signals_alone(build: Build) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with anyio.fail_after(10):
        async with serve(build()) as url:
            assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
            port = httpx.URL(url).port
            assert port
        async with serve(build(), port=port) as again:
            assert again == url


async def test_leaving_does_not_wait_for_idle_connections(build: Build) -> None:
    async with httpx.AsyncClient(headers=KEY, trust_env=False) as client:
        with anyio.fail_after(5):
            async with serve(build()) as url:
                assert (await client.get(f"{url}/v1/stock")).status_code == 200


async def test_an_error_inside_comes_out_as_itself(build: Build) -> None:
    with anyio.fail_after(10), pytest.raises(ExceptionGroup) as caught:
        async with serve(build()):
            raise LookupError
    assert caught.group_contains(LookupError)


async def test_cancelling_stops_it(build: Build) -> None:
    with anyio.move_on_after(0.3) as scope:
        async with serve(build()) as url:
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(url)


async def test_a_port_in_use_is_an_error_before_anything_starts(build: Build) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        async with serve(build(), port=taken.getsockname()[1]):
            pass


async def test_small_answers_are_not_held_back_by_the_network(build: Build) -> None:
    """Header and body are two writes: without TCP_NODELAY the second waits 40 ms for the first's acknowledgement."""
    async with serve(build()) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        times = []
        for _ in range(20):
            started = anyio.current_time()
            await client.get("/v1/warehouses?limit=1")
            times.append(anyio.current_time() - started)
    assert min(times[1:]) < 0.03


def test_importing_the_package_loads_no_server() -> None:
    code = "import sys, json, dockbell.sandbox; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert not {"starlette", "uvicorn", "anyio", "asyncio"} & set(modules)
