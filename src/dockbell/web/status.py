"""``GET /status`` and ``/why/{source}/{resource}/{key}``: as ``dockbell status --json`` and ``dockbell why --json``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import describe_history, describe_status
from dockbell.admin.status import Status
from dockbell.admin.why import find_history
from dockbell.config import Config
from dockbell.ports import ReadStore
from dockbell.web import params
from dockbell.web.responses import json_response


class StatusEndpoints:
    """The endpoints.

    Args:
        read_store: Of the store.
        config: Returns the configuration that is followed.
        load: Returns the status.
        now: Our clock.
    """

    def __init__(
        self,
        read_store: ReadStore,
        config: Callable[[], Config],
        load: Callable[[], Awaitable[Status]],
        now: Callable[[], datetime],
    ) -> None:
        self._read_store = read_store
        self._config = config
        self._load = load
        self._now = now

    async def answer_status(self, request: Request) -> Response:
        """Answer with the status of all feeds and sinks."""
        params.read_query(request)
        return json_response(describe_status(await self._load()))

    async def answer_why(self, request: Request) -> Response:
        """Answer with the history of a record, and why it has its events, or none.

        Raises:
            Problem: 404.
        """
        params.read_query(request)
        feed = params.read_feed(request)
        config = self._config()
        params.check_configured(feed, config)
        given = unquote(request.path_params["key"])
        account = await find_history(
            self._read_store, feed, given, feeds=config.feeds(), sinks=config.sinks, at=self._now()
        )
        return json_response(describe_history(account, given))
