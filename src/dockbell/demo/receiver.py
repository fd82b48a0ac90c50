"""The demo's webhook receiver: a real HTTP server that believes nothing without a signature."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dockbell.core.publishing.signature import Finding, parse_secret, verify
from dockbell.demo.arrival import HOOK, Arrival
from dockbell.demo.broker import HOST

_NO_CONTENT, _UNAUTHORIZED = 204, 401


@asynccontextmanager
async def receive(secret: str, take: Callable[[Arrival], None], refuse: Callable[[str], None]) -> AsyncIterator[str]:
    """Receive webhooks until the block is left; the value is the URL to send them to.

    Args:
        secret: The ``whsec_`` text that the sender signs with.
        take: Called with each event whose signature is genuine.
        refuse: Called with the reason for each that is not; the sender is answered 401.
    """
    keys = [parse_secret(secret)]

    async def answer(request: Request) -> Response:
        body = await request.body()
        at = datetime.now(UTC)
        finding = verify(
            keys,
            request.headers.get("webhook-id", ""),
            request.headers.get("webhook-timestamp", ""),
            request.headers.get("webhook-signature", ""),
            body,
            now=int(time.time()),
        )
        if finding is not Finding.GENUINE:
            refuse(finding)
            return Response(finding, status_code=_UNAUTHORIZED)
        take(Arrival.of(HOOK, body, at))
        return Response(status_code=_NO_CONTENT)

    listener = socket.create_server((HOST, 0), backlog=128)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio leaves it off for sockets made by others
    app = Starlette(routes=[Route("/", answer, methods=["POST"])])
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=75,  # uvicorn's 5 s are httpx's too: a request could meet the end of its connection
            timeout_graceful_shutdown=1,
        )
    )
    async with anyio.create_task_group() as group:
        group.start_soon(_run, server, listener)
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}"
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
