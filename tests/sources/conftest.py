"""A loop whose clock leaps, and servers that misbehave."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import pytest

Conversation: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve: TypeAlias = Callable[[Conversation], AbstractAsyncContextManager[int]]


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for timers by setting its clock forward: minutes pass in no time."""

    def __init__(self) -> None:
        self._leapt = 0.0
        loop = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> list[Any]:
                ready = super().select(0)
                if not ready and timeout:
                    loop._leapt += timeout
                return ready

        super().__init__(Selector())

    def time(self) -> float:
        """Return real time plus all that was leapt over."""
        return super().time() + self._leapt


@pytest.fixture(scope="session")
def leaping_backend() -> tuple[str, dict[str, Any]]:
    """Return the backend on which waits take no time."""
    return "asyncio", {"loop_factory": LeapingLoop}


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
