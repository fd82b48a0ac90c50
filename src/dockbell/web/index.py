"""``GET /`` and ``/feeds``: the list of feeds, or the status page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from dockbell._version import __version__
from dockbell.config import Config
from dockbell.ports import ReadStore
from dockbell.web import params
from dockbell.web.assets import wants_page
from dockbell.web.position import Position
from dockbell.web.responses import json_response


class Index:
    """The endpoints.

    Args:
        config: Returns the configuration that is followed.
        read_store: Of the store.
    """

    def __init__(self, config: Callable[[], Config], read_store: ReadStore) -> None:
        self._config = config
        self._read_store = read_store

    async def answer(self, request: Request) -> Response:
        """Answer with the feeds, and the extent of each."""
        params.read_query(request)
        feeds = []
        for state in await self._read_store.load_feeds():
            extent = await params.find_extent(self._read_store, state.feed)
            feeds.append(
                {
                    "name": str(state.feed),
                    "oldest": str(Position(self._read_store.epoch, extent.pruned)),
                    "last": str(Position(self._read_store.epoch, extent.last)),
                    "feed": f"feeds/{state.feed}",
                    "state": f"state/{state.feed}",
                }
            )
        return json_response({"name": self._config().name, "version": __version__, "feeds": feeds})

    def or_page(self, give_page: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that gives the page to clients that accept HTML by name, and the feeds to others."""

        async def answer(request: Request) -> Response:
            response = await (give_page if wants_page(request.headers.get("accept", "")) else self.answer)(request)
            response.headers["Vary"] = "Accept"
            return response

        return answer
