"""``GET /events`` and ``/events/{source}/{resource}/{sequence}``: recorded events, for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import describe_traces, write_moment
from dockbell.admin.replaying import read_keys
from dockbell.admin.why import find_event_trace
from dockbell.config import Config
from dockbell.core import pointer
from dockbell.core.document import decode
from dockbell.core.leaves import Difference, compare
from dockbell.core.model import JSON, Event
from dockbell.ports import ReadStore
from dockbell.web import params
from dockbell.web.problem import Problem
from dockbell.web.summary import summarise

PLACE_MOST: Final = 10**18 - 1
DIFFERENCES_MOST: Final = 1000

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


class _Number:
    """A number that is no integer, as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def write(self) -> msgspec.Raw:
        return msgspec.Raw(self.text.encode())


_AS_WRITTEN: Final = msgspec.json.Decoder(float_hook=_Number)
_WRITER: Final = msgspec.json.Encoder(enc_hook=_Number.write)


class Events:
    """The endpoints.

    Args:
        read_store: Of the store.
        config: Returns the configuration that is followed.
    """

    def __init__(self, read_store: ReadStore, config: Callable[[], Config]) -> None:
        self._read_store = read_store
        self._config = config

    async def answer_list(self, request: Request) -> Response:
        """Answer with events, newest first.

        Raises:
            Problem: 400.
        """
        given = params.read_query(request, "before", "limit", "source", "resource", "key", "type", "change")
        limit = params.read_limit(given, default=params.LIST_LIMIT, most=params.LIST_LIMIT_MOST)
        before = params.read_number("before", given["before"], 0, PLACE_MOST) if "before" in given else None
        keys = params.read("key", given["key"], lambda key: read_keys([key])) if "key" in given else None
        feeds = None
        if "source" in given or "resource" in given:
            feeds = [
                state.feed
                for state in await self._read_store.load_feeds()
                if given.get("source") in (None, state.feed.source)
                and given.get("resource") in (None, state.feed.resource)
            ]
        found, following = await self._read_store.read_earlier(
            before, limit, feeds=feeds, keys=keys, type_=given.get("type"), change=given.get("change")
        )
        return _answer({"events": [summarise(place, event) for place, event in found], "next": following})

    async def answer_one(self, request: Request) -> Response:
        """Answer with one event, its differences, and its deliveries.

        Raises:
            Problem: 404.
        """
        params.read_query(request)
        feed = params.read_feed(request)
        await params.find_extent(self._read_store, feed)
        sequence = params.read_path_number(request, "sequence", PLACE_MOST)
        told = await find_event_trace(self._read_store, feed, sequence, sinks=self._config().sinks)
        if told is None:
            detail = f"event {feed} #{sequence}: is not kept, or was never recorded; /events lists those that are"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-event", detail)
        differences = find_differences(told.event)
        written = _AS_WRITTEN.decode(told.event.body)["data"]
        shown = [_describe(each, written) for each in islice(differences, DIFFERENCES_MOST)]
        return _answer(
            {
                "event": msgspec.Raw(told.event.body),
                "recorded_at": write_moment(told.recorded_at),
                "differences": shown,
                "more": sum(1 for _ in differences),
                "deliveries": describe_traces(told.transits),
            }
        )


def find_differences(event: Event) -> Iterator[Difference]:
    """Yield the changes of an event, leaf by leaf; none for an event of a feed, or with purged content."""
    data = decode(event.body)["data"]
    if "statement" in data:
        return iter(())
    before, after = (pointer.MISSING if data.get(name) is None else data[name] for name in ("before", "after"))
    return compare(before, after)


def _describe(each: Difference, written: dict[str, JSON]) -> dict[str, JSON]:
    texts = {"before": each.op != "add", "after": each.op != "remove"}
    before, after = (_write(written[name], each.path) if is_there else None for name, is_there in texts.items())
    return {
        "path": each.path,
        "op": each.op,
        "from": each.before,
        "to": each.after,
        "from_text": before,
        "to_text": after,
    }


def _write(document: JSON, path: str) -> str:
    """Return the JSON text of a value, its numbers to the digit: JavaScript would round them."""
    return _WRITER.encode(pointer.resolve(document, pointer.parse(path))).decode()


def _answer(body: object) -> Response:
    return Response(_ENCODER.encode(body), media_type="application/json")
