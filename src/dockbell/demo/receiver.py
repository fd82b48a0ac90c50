"""The demo's webhook receiver: a real HTTP server that believes nothing without a signature."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dockbell.core.publishing.signature import Finding, parse_secret, verify
from dockbell.demo.arrival import HOOK, Arrival
from dockbell.demo.broker import HOST
from dockbell.net.listening import listening

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
    async with listening(app, listener):
        yield f"http://{HOST}:{listener.getsockname()[1]}"
