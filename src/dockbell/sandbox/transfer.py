"""What HTTP may do with an answer on its way: leave it out when the client has it, or compress it."""

from __future__ import annotations

import gzip
from hashlib import blake2b
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dockbell.sandbox.aim import counts
from dockbell.sandbox.answers import hear
from dockbell.sandbox.settings import Settings

_OK: Final = 200
_FAST: Final = 1


class Transfer:
    """An ASGI application that adds ETag, 304 and gzip to another's answers below ``/v1/``."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        options = self._settings.options
        if (options.etag == "none" and not options.gzip) or scope["type"] != "http" or not counts(scope):
            await self._app(scope, receive, send)
            return
        answer = await hear(self._app, scope, receive)
        asked = Headers(scope=scope)
        if options.etag != "none" and answer.status_code == _OK and scope["method"] == "GET":
            tag = f'"{blake2b(answer.body, digest_size=12).hexdigest()}"'
            known = [given.strip().removeprefix("W/") for given in asked.get("if-none-match", "").split(",")]
            if tag in known or "*" in known:
                answer = Response(status_code=304)
            answer.headers["ETag"] = tag if options.etag == "strong" else f"W/{tag}"
        if options.gzip:
            answer.headers["Vary"] = "Accept-Encoding"
            if answer.body and "gzip" in asked.get("accept-encoding", ""):
                answer.body = gzip.compress(answer.body, _FAST)
                answer.headers["Content-Encoding"] = "gzip"
                answer.headers["Content-Length"] = str(len(answer.body))
        await answer(scope, receive, send)
