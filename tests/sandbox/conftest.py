"""A clock that tests turn, and clients of sandboxes in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from dockbell.sandbox import Sandbox, SandboxOptions


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def turn(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


Build = Callable[..., Sandbox]
Open = Callable[..., Awaitable[tuple[Sandbox, httpx.AsyncClient]]]
ReadAll = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def build(clock: Clock) -> Build:
    """Build a sandbox of 300 records on the test's clock; options override."""

    def build_sandbox(**options: Any) -> Sandbox:
        return Sandbox(SandboxOptions(**{"records": 300} | options), now=clock)

    return build_sandbox


@pytest.fixture
async def opened(build: Build) -> AsyncIterator[Open]:
    """Build a sandbox and a client of it with its key."""
    async with AsyncExitStack() as stack:

        async def open_sandbox(**options: Any) -> tuple[Sandbox, httpx.AsyncClient]:
            sandbox = build(**options)
            transport = httpx.ASGITransport(sandbox.app)
            headers = {"Authorization": "Bearer sandbox"}
            client = httpx.AsyncClient(transport=transport, base_url="http://sandbox", headers=headers)
            return sandbox, await stack.enter_async_context(client)

        yield open_sandbox


@pytest.fixture
async def client(opened: Open) -> httpx.AsyncClient:
    """A client of a sandbox of 300 records without limits."""
    return (await opened(requests_per_minute=0))[1]


@pytest.fixture
def read_all() -> ReadAll:
    """Read a listing page by page to its end."""

    async def read(client: httpx.AsyncClient, resource: str, **parameters: Any) -> list[Any]:
        records = []
        cursor = None
        while True:
            asked = parameters | ({"cursor": cursor} if cursor else {})
            response = await client.get(f"/v1/{resource}", params=asked)
            assert response.status_code == httpx.codes.OK, response.text
            page = response.json()
            records += page[resource]
            cursor = page.get("next_cursor")
            if not cursor:
                return records

    return read
