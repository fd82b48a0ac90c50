"""A loop in which waits take no time, an API behind a client, and servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, TypeAlias

import pytest
import respx
from respx.mocks import AbstractRequestMocker

from dockbell.sources import InventoryClient
from dockbell.telemetry import Fact, Telemetry
from tests.virtual_time import SkippingLoop

Conversation: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve: TypeAlias = Callable[[Conversation], AbstractAsyncContextManager[int]]

_BASE = "https://api.example.com"


class _ConnectionMocker(AbstractRequestMocker):
    """Lets respx answer where a connection would be asked."""

    name = "dockbell"
    targets: ClassVar[list[str]] = ["dockbell.net.http_connection.HttpConnection"]
    target_methods: ClassVar[list[str]] = ["handle_async_request"]

    @classmethod
    def to_httpx_request(cls, **kwargs: Any) -> Any:
        return kwargs["request"]

    @classmethod
    async def from_async_httpx_response(cls, httpx_response: Any, *_: Any, **__: Any) -> Any:
        return httpx_response


@pytest.fixture(scope="session")
def skipping_backend() -> tuple[str, dict[str, Any]]:
    """Return the backend on which waits take no time."""
    return "asyncio", {"loop_factory": SkippingLoop}


@pytest.fixture
def api() -> Iterator[respx.MockRouter]:
    with respx.mock(base_url=_BASE, assert_all_called=False, using=_ConnectionMocker.name) as router:
        yield router


@pytest.fixture
def facts() -> list[Fact]:
    return []


@pytest.fixture
def client(facts: list[Fact]) -> InventoryClient:
    return InventoryClient(_BASE, "KEY", telemetry=Telemetry(facts.append))


@pytest.fixture
def serve() -> Serve:
    """Return what serves one conversation per connection on a loopback port; the value is the port."""

    @asynccontextmanager
    async def serve_conversation(conversation: Conversation) -> AsyncIterator[int]:
        under_way = set()

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            under_way.add(task)
            try:
                await conversation(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                under_way.discard(task)
                writer.close()

        async with await asyncio.start_server(converse, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]
            for task in under_way:
                if task is not None:
                    task.cancel()

    return serve_conversation
