"""The sandbox on a port, inside the running event loop."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from dockbell.net.listening import Connection, listening
from dockbell.sandbox.faults import HANG_UP
from dockbell.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    import asyncio

    from starlette.types import Receive, Scope, Send


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that who connects waits for :func:`serve`.

    Raises:
        OSError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=1024)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio leaves it off for sockets made by others
    return listener


@asynccontextmanager
async def serve(
    sandbox: Sandbox, host: str = "127.0.0.1", port: int = 0, *, listener: socket.socket | None = None
) -> AsyncIterator[str]:
    """Serve the sandbox and let it live until the block is left; the value is its base URL.

    Signals are left alone. On leaving, open connections are closed; answers under way have a second to finish.

    Args:
        sandbox: What to serve.
        host: The address to listen on.
        port: The port, 0 for any free one.
        listener: What :func:`bind` gave for them, if that was done already.

    Raises:
        OSError: The address cannot be listened on.
    """
    listener = listener or bind(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    async with (
        listening(sandbox.app, listener, http=_Connection, date_header=False, server_header=False),
        anyio.create_task_group() as group,
    ):
        group.start_soon(sandbox.live)
        try:
            yield f"http://{shown_host}:{listener.getsockname()[1]}"
        finally:
            group.cancel_scope.cancel()


class _Connection(Connection):
    """Lets the application break the connection, as an ASGI extension."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Offer the extension to every request of this connection."""
        super().connection_made(transport)
        app = self.app

        async def app_with_hang_up(scope: Scope, receive: Receive, send: Send) -> None:
            async def hang_up(*, reset: bool) -> None:
                if reset:
                    endpoint = transport.get_extra_info("socket")
                    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    transport.abort()
                else:
                    transport.close()
                while (await receive())["type"] != "http.disconnect":
                    pass

            extensions: dict[str, Any] = scope.setdefault("extensions", {})
            extensions[HANG_UP] = hang_up
            await app(scope, receive, send)

        self.app = app_with_hang_up
