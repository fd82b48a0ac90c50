"""A webhook receiver as a user would write one, with the moods of a real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tests.brokers import find_free_port
from tests.oracle import Account
from tests.serving import listening


class Receiver:
    """Verifies each signature and tells the account; can be away, or refuse for a while.

    Attributes:
        status: What it answers; anything but 204 takes nothing.
    """

    def __init__(self, secret: str, account: Account) -> None:
        self.status = HTTPStatus.NO_CONTENT
        self.port = find_free_port()
        self._account = account
        self._webhook = Webhook(secret)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hooks/dockbell"

    async def take(self, request: Request) -> Response:
        """Answer one delivery."""
        if self.status is HTTPStatus.NO_CONTENT:
            try:
                body = await request.body()
            except ClientDisconnect:  # the sender was killed half-way
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            self._webhook.verify(body, dict(request.headers))
            event = json.loads(body)
            assert request.headers["webhook-id"] == event["id"]
            self._account.hear(event)
        return Response(status_code=self.status)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Be there while inside."""
        app = Starlette(routes=[Route("/hooks/dockbell", self.take, methods=["POST"])])
        async with listening(app, self.port):
            yield
