"""``GET /`` and ``/feeds``: what there is. ``GET /healthz``: whether anything is."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell import __version__
from dockbell.ports import View
from dockbell.web import question
from dockbell.web.position import Position


class Index:
    """The endpoints.

    Args:
        name: The name of this dockbell.
        view: Of the store.
    """

    def __init__(self, name: str, view: View) -> None:
        self._name = name
        self._view = view

    async def answer(self, request: Request) -> Response:
        """Answer with the feeds, and how far each reaches."""
        question.read_parameters(request)
        feeds = []
        for state in await self._view.load_feeds():
            extent = await question.find_extent(self._view, state.feed)
            feeds.append(
                {
                    "name": str(state.feed),
                    "oldest": str(Position(self._view.epoch, extent.pruned)),
                    "last": str(Position(self._view.epoch, extent.last)),
                    "feed": f"feeds/{state.feed}",
                    "state": f"state/{state.feed}",
                }
            )
        return _answer({"name": self._name, "version": __version__, "feeds": feeds})

    async def answer_health(self, request: Request) -> Response:
        """Answer at all: the daemon runs, and its store can be read."""
        question.read_parameters(request)
        await self._view.load_feeds()
        return _answer({"status": "ok"})


def _answer(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
