"""``GET /events`` and ``/events/{source}/{resource}/{sequence}``: recorded events, for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import Count, Model, Time
from dockbell.admin.history_as_json import DeliveryModel, describe_traces
from dockbell.admin.replaying import read_keys
from dockbell.admin.why import find_event_trace
from dockbell.config import Config
from dockbell.core import pointer
from dockbell.core.diff import Difference, compare_leaves
from dockbell.core.document import decode
from dockbell.core.model import JSON, Event
from dockbell.core.moment import format_moment
from dockbell.core.publishing.narrate import narrate
from dockbell.ports import ReadStore
from dockbell.web import params
from dockbell.web.responses import Problem, json_response

_WORDS_MOST: Final = 160
DIFFERENCES_MOST: Final = 1000
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


class Summary(Model):
    place: Count
    feed: str
    source: str
    resource: str
    sequence: Count
    key: str
    type: str
    change: str
    revision: Count
    at: Time
    words: str


def summarise(place: int, event: Event) -> Summary:
    """Return the summary of an event; ``place`` numbers the events of all feeds."""
    told = decode(event.body)
    return Summary.of(
        event,
        place=place,
        key=event.key if event.is_of_record else "",
        feed=str(event.feed),
        source=event.feed.source,
        resource=event.feed.resource,
        at=told["time"],
        words=narrate(told, width=_WORDS_MOST),
    )


CloudEvent: TypeAlias = Annotated[
    msgspec.Raw,
    msgspec.Meta(
        description="A CloudEvent as every sink gets it; docs/reference/events.md has its schema.",
        extra_json_schema={
            "type": "object",
            "required": ["specversion", "id", "source", "type", "time", "sequence", "data"],
        },
    ),
]


class EventList(Model):
    events: list[Summary]
    next: Count | None


class DifferenceModel(Model, rename={"from_": "from"}):
    path: str
    op: Literal["add", "remove", "replace"]
    from_: Any
    to: Any
    from_text: str | None
    to_text: str | None


class EventDetail(Model):
    event: CloudEvent
    text: str
    recorded_at: Time
    differences: list[DifferenceModel]
    more: Count
    deliveries: list[DeliveryModel]


class _Number:
    """A number that is no integer, as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def write(self) -> msgspec.Raw:
        return msgspec.Raw(self.text.encode())


_AS_WRITTEN: Final = msgspec.json.Decoder(float_hook=_Number)
_WRITER: Final = msgspec.json.Encoder(enc_hook=_Number.write)


class Events(msgspec.Struct, frozen=True):
    read_store: ReadStore
    config: Callable[[], Config]

    async def answer_list(self, request: Request) -> Response:
        given = request.query_params
        limit = params.read_limit(given, default=params.LIST_LIMIT, most=params.LIST_LIMIT_MOST)
        before = params.read_number("before", given["before"], 0, params.PLACE_MOST) if "before" in given else None
        keys = params.read("key", given["key"], lambda key: read_keys([key])) if "key" in given else None
        feeds = None
        if "source" in given or "resource" in given:
            feeds = [
                state.feed
                for state in await self.read_store.load_feeds()
                if given.get("source") in (None, state.feed.source)
                and given.get("resource") in (None, state.feed.resource)
            ]
        found, following = await self.read_store.read_earlier(
            before,
            limit,
            feeds=feeds,
            keys=keys,
            type_=given.get("type"),
            change=given.get("change"),
            id_=given.get("id"),
        )
        return json_response(EventList([summarise(place, event) for place, event in found], following))

    async def answer_one(self, request: Request) -> Response:
        feed = params.read_feed(request)
        await params.find_extent(self.read_store, feed)
        sequence = params.read_number("sequence", request.path_params["sequence"], 0, params.PLACE_MOST)
        told = await find_event_trace(self.read_store, feed, sequence, sinks=self.config().sinks)
        if told is None:
            detail = f"event {feed} #{sequence}: is not kept, or was never recorded; /events lists the kept ones"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-event", detail)
        differences = find_differences(told.event)
        written = _AS_WRITTEN.decode(told.event.body)["data"]
        shown = [_describe(each, written) for each in islice(differences, DIFFERENCES_MOST)]
        body = EventDetail(
            event=msgspec.Raw(told.event.body),
            text=msgspec.json.format(told.event.body).decode(),
            recorded_at=format_moment(told.recorded_at),
            differences=shown,
            more=sum(1 for _ in differences),
            deliveries=describe_traces(told.traces),
        )
        return Response(_ENCODER.encode(body), media_type="application/json")


def find_differences(event: Event) -> Iterator[Difference]:
    """Yield the changes of an event, leaf by leaf; none for an event of a feed, or with purged content."""
    data = decode(event.body)["data"]
    if "statement" in data:
        return iter(())
    before, after = (pointer.MISSING if data.get(name) is None else data[name] for name in ("before", "after"))
    return compare_leaves(before, after)


def _describe(each: Difference, written: dict[str, JSON]) -> DifferenceModel:
    texts = {"before": each.op != "add", "after": each.op != "remove"}
    before, after = (_write(written[name], each.path) if is_there else None for name, is_there in texts.items())
    return DifferenceModel(each.path, each.op, each.before, each.after, before, after)


def _write(document: JSON, path: str) -> str:
    """Return the JSON text of a value, its numbers to the digit: JavaScript would round them."""
    return _WRITER.encode(pointer.resolve(document, pointer.parse(path))).decode()
