"""An ASGI application on a port, inside the running event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def listening(app: ASGIApp, port: int) -> AsyncIterator[None]:
    """Be there while inside; the application writes its own ``Date``."""
    config = uvicorn.Config(
        app, port=port, log_config=None, access_log=False, lifespan="off", ws="none", date_header=False
    )
    config.timeout_graceful_shutdown = 1
    server = _Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        while not server.started:  # noqa: ASYNC110  # uvicorn tells it in no other way
            await anyio.sleep(0.01)
        yield
        server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves the signals to the tests."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
