"""An ASGI application on a socket, inside the running event loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import uvicorn


@asynccontextmanager
async def listening(app: Any, listener: socket.socket, **settings: Any) -> AsyncIterator[None]:
    """Answer on a listening socket until the block is left; answers under way have a second to finish then.

    Signals are left alone.

    Args:
        app: The application; it has no lifespan and no web sockets.
        listener: The socket, which is closed in the end.
        settings: For uvicorn.
    """
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,  # uvicorn's 5 s are httpx's too: a request could meet the end of its connection
        timeout_graceful_shutdown=1,
        **settings,
    )
    server = _Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(_run, server, listener)
        try:
            yield
        finally:
            server.should_exit = True
            group.cancel_scope.cancel()


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Leaves the process's signals to those who own the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
