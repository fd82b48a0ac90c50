"""``GET /`` and ``/feeds``: the list of feeds. ``GET /state/{source}/{resource}[/{key}]``: the stored records.

A reader reads all pages of the records, then the feed after the position of the first page, which all pages repeat. A
page may be newer than that position, so the reader drops each event whose revision is not above that of the record it
has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Final, TypeAlias
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell._version import __version__
from dockbell.admin.as_json import Count, Model
from dockbell.config import Config
from dockbell.config.values import show
from dockbell.core import key
from dockbell.core.model import NOTICES, Feed
from dockbell.ports import ReadStore, StoredState
from dockbell.web import params
from dockbell.web.allowance import Allowance
from dockbell.web.assets import Assets
from dockbell.web.feeds import COPIES
from dockbell.web.params import Cursor, Position
from dockbell.web.responses import Problem, json_response

_BYTES_MOST: Final = 4_000_000
_AT_ONCE: Final = 50


class FeedInIndex(Model):
    name: str
    oldest: str
    last: str
    feed: str
    state: str


class IndexModel(Model):
    name: str
    version: str
    feeds: list[FeedInIndex]


class Index(msgspec.Struct, frozen=True):
    config: Callable[[], Config]
    read_store: ReadStore
    assets: Assets

    async def answer(self, _: Request) -> Response:
        feeds = []
        for state in await self.read_store.load_feeds():
            extent = await params.find_extent(self.read_store, state.feed)
            oldest, last = (str(Position(self.read_store.epoch, number)) for number in (extent.pruned, extent.last))
            feeds.append(FeedInIndex(str(state.feed), oldest, last, f"feeds/{state.feed}", f"state/{state.feed}"))
        return json_response(IndexModel(self.config().name, __version__, feeds))

    async def answer_or_page(self, request: Request) -> Response:
        """Answer with the page where HTML is accepted by name, as browsers do; else with the feeds."""
        is_page = params.accepts(request.headers.get("accept", ""), "text/html")
        response = self.assets.answer_page(request) if is_page else await self.answer(request)
        response.headers.add_vary_header("Accept")
        return response


_Body: TypeAlias = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]


class RecordInPage(Model):
    key: str
    revision: Count
    record: _Body


class StatePage(Model):
    position: str
    complete: bool
    records: list[RecordInPage]
    next: str | None
    feed: str


class StateRecord(Model):
    position: str
    key: str
    revision: Count
    record: _Body


class State(msgspec.Struct, frozen=True):
    read_store: ReadStore
    allowance: Allowance

    async def answer_page(self, request: Request) -> Response:
        """Answer with some of the records of a feed.

        Raises:
            Problem: 400, 404, 410; 503, answers hold too many bytes.
        """
        given = request.query_params
        limit = params.read_limit(given)
        feed = params.read_feed(request)
        cursor = params.read("cursor", given["cursor"], Cursor.parse) if "cursor" in given else None
        extent = await params.find_extent(self.read_store, feed)
        if cursor is not None:
            params.check_position(feed, self.read_store.epoch, extent, cursor.position)
        is_complete = await self._is_complete(feed)
        row = 0 if cursor is None else cursor.row
        count, size, has_more = _take(await self.read_store.measure_records(feed, row, limit + 1), limit)
        with self.allowance.hold(COPIES * size):
            sequence, records = await self.read_store.read_records(feed, row, count)
            is_complete &= await self._is_complete(feed)  # read settings may have changed meanwhile
            position = Position(self.read_store.epoch, sequence) if cursor is None else cursor.position
            follow = f"../../feeds/{feed}?after={position}"
            is_more = has_more and bool(records)
            following = f"?cursor={Cursor(position, records[-1].row)}&limit={limit}" if is_more else None
            shown = [RecordInPage(record.key, record.revision, _find_body(record)) for record in records]
            body = StatePage(str(position), is_complete, shown, following, follow)
            links = f'<{follow}>; rel="monitor"'
            if following is not None:
                links = f'<{following}>; rel="next", {links}'
            return _answer(body, position, {"Link": links})

    async def answer_one(self, request: Request) -> Response:
        """Answer with one record.

        Raises:
            Problem: 404, it was never stored; 410, it was deleted.
        """
        feed = params.read_feed(request)
        await params.find_extent(self.read_store, feed)
        part = request.path_params["key"]
        for text in _possible_keys(part):
            sequence, record = await self.read_store.read_record(feed, text)
            if record is not None:
                break
        else:
            detail = f"record {show(unquote(part))}: is not known in {feed}; /state/{feed} lists the stored records"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-record", detail)
        position = Position(self.read_store.epoch, sequence)
        if record.body is None:
            members = {"key": record.key, "revision": record.revision, "position": str(position)}
            detail = f"record {show(record.key)}: was deleted"
            raise Problem(HTTPStatus.GONE, "record-gone", detail, members=members)
        return _answer(StateRecord(str(position), record.key, record.revision, _find_body(record)), position, {})

    async def _is_complete(self, feed: Feed) -> bool:
        """Return whether a pass was complete; before that, records come and change without events."""
        extent = await self.read_store.find_extent(feed)
        return feed == NOTICES or (extent is not None and extent.is_complete)


def _take(sizes: Sequence[int], limit: int) -> tuple[int, int, bool]:
    """Return how many records to answer with, their bytes, and whether there are more.

    At most ``limit``, and about 4 MB.
    """
    count = size = 0
    while count < len(sizes) and size < _BYTES_MOST:
        some = sizes[count : count + _AT_ONCE]
        count, size = count + len(some), size + sum(some)
    return min(count, limit), size, len(sizes) > min(count, limit)


def _possible_keys(part: str) -> list[str]:
    """Return the key strings that a part of a path can mean, the likelier first.

    A key string holds ``%`` itself, and is percent-encoded once more in a path; but people paste it as it is. Where
    both readings are possible, the stored record decides: the wrong one has another number of components.
    """
    components = part.split(",")
    try:
        pasted = key.encode([unquote(component, errors="strict") for component in components])
        encoded = unquote(part, errors="strict")
    except ValueError:
        return []
    return [encoded] if encoded == pasted else [encoded, pasted]


def _find_body(record: StoredState) -> msgspec.Raw:
    assert record.body is not None
    return msgspec.Raw(record.body)


def _answer(body: Model, position: Position, headers: dict[str, str]) -> Response:
    return json_response(body, headers={"Dockbell-Position": str(position), **headers})
