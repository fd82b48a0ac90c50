"""One record with tens of thousands of tags, and conditions that go through all of them for each of them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.brokers import find_free_port
from tests.cli.programs import Program, run, started
from tests.serving import listening
from tests.workers import find_workers, is_alive

pytestmark = pytest.mark.acceptance

SUBSET: Final = "after.tags.exists(t, !(t in before.tags))"
CONFIG: Final = """
[sources.main]
base_url = "http://127.0.0.1:{api}"
api_key = {{ env = "DOCKBELL_API_KEY" }}
requests_per_minute = 6000

[web]
listen = "127.0.0.1:{web}"

[resources.stock]
every = "300ms"
key = "/sku"

[[resources.stock.events]]
name = "tagged"
when = "{subset}"

[sinks.screen]
type = "stdout"
changes = ["updated"]
where = "{subset}"
"""


class Api:
    """A list of one record, which changes with each request once it is told to, and gets no other tag."""

    def __init__(self) -> None:
        self.port = find_free_port()
        self.tags = [f"tag-{number}" for number in range(40_000)]
        self.changes = 0
        self.is_quiet = True

    async def _list(self, _: Request) -> JSONResponse:
        self.changes += not self.is_quiet
        return JSONResponse({"stock": [{"sku": "a", "n": self.changes, "tags": self.tags}], "next_cursor": None})

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/stock", self._list)])


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    async with listening(api.app, api.port):
        yield api


async def until_sent(program: Program, count: int) -> list[dict[str, Any]]:
    """Wait until so many events were written to standard output, and return them."""
    with anyio.fail_after(60):
        while program.out.count("\n") < count:  # noqa: ASYNC110  # another process writes it
            await anyio.sleep(0.1)
    return [json.loads(line) for line in program.out.splitlines() if line.startswith("{")]


async def test_a_record_that_is_made_to_be_expensive_stops_nothing(tmp_path: Path, api: Api) -> None:
    web, secrets = find_free_port(), {"DOCKBELL_API_KEY": "canary-api-key-8f2b"}
    (tmp_path / "dockbell.toml").write_text(CONFIG.format(api=api.port, web=web, subset=SUBSET))
    with started(tmp_path, "run", env=secrets) as daemon:
        daemon.until("runs")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{web}", timeout=20) as client:
            with anyio.fail_after(30):
                while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # another process says so
                    await anyio.sleep(0.1)
            api.is_quiet = False
            longest = 0.0
            async with anyio.create_task_group() as group:

                async def look() -> None:
                    nonlocal longest
                    while True:
                        began_at = time.monotonic()
                        assert (await client.get("/healthz")).status_code == 200
                        longest = max(longest, time.monotonic() - began_at)
                        await anyio.sleep(0.02)

                group.start_soon(look)
                events = await until_sent(daemon, 6)
                group.cancel_scope.cancel()
        assert longest < 3  # the watchdog waits for 90 s
        assert {event["type"] for event in events} == {"dockbell.stock.updated", "dockbell.stock.tagged"}
        assert all(event["data"]["unjudged"] for event in events if event["type"].endswith("tagged"))
        api.is_quiet = True
        told = await anyio.to_thread.run_sync(lambda: run("why", "stock", "a", cwd=tmp_path, env=secrets))
        assert "takes too long to judge of so large a record" in told.stdout
        assert "unjudged" in told.stdout
        workers = find_workers(daemon.pid)
        daemon.close()
        with anyio.fail_after(10):
            while any(is_alive(worker) for worker in workers):  # noqa: ASYNC110  # they end by themselves
                await anyio.sleep(0.05)
