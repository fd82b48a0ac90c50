"""An ASGI application on a port, inside the running event loop."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from dockbell.net.listening import listening as listening_on


@asynccontextmanager
async def listening(app: ASGIApp, port: int) -> AsyncIterator[None]:
    """Be there while inside; the application writes its own ``Date``."""
    async with listening_on(app, socket.create_server(("127.0.0.1", port)), date_header=False):
        yield
