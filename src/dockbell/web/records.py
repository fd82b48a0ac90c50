"""``GET /records/{source}/{resource}[/{key}]``: stored records, for the page; programs read ``/state``."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import Count, Model, Time
from dockbell.admin.state import find_one
from dockbell.config import Config
from dockbell.config.values import show
from dockbell.core.text_search import TextSearch
from dockbell.ports import FeedState, ReadStore, StoredRecord
from dockbell.web import params
from dockbell.web.events import Summary, summarise
from dockbell.web.responses import Problem, json_response

_HISTORY: Final = 50
"""So many events of a record are shown: the last."""


class RecordEntry(Model):
    key: str
    revision: Count
    modified: Time | None
    gone_at: Time | None


class RecordList(Model):
    records: list[RecordEntry]
    next: Count | None


class RecordDetail(Model):
    feed: str
    key: str
    revision: Count
    modified: Time | None
    gone_at: Time | None
    text: str | None
    events: list[Summary]


class Records(msgspec.Struct, frozen=True):
    read_store: ReadStore
    config: Callable[[], Config]

    async def answer_list(self, request: Request) -> Response:
        """Answer with records in the order in which they were first seen.

        Those whose keys have a part, ``find``, or those that have a ``text`` in their values or keys.
        """
        given = request.query_params
        limit = params.read_limit(given, default=params.LIST_LIMIT, most=params.LIST_LIMIT_MOST)
        after = params.read_number("after", given["after"], 0, params.PLACE_MOST) if "after" in given else 0
        state = await self._find_feed(request)
        if given.get("text"):
            if "find" in given:
                raise params.bad_request("text: also searches keys; omit find")
            search = TextSearch(given["text"])
            found, following = await self.read_store.search_records(state.id, search, after, limit)
        else:
            found, following = await self.read_store.find_records(state.id, given.get("find", ""), after, limit)
        return json_response(RecordList([RecordEntry.of(each) for each in found], following))

    async def answer_one(self, request: Request) -> Response:
        """Answer with a record, deleted ones too, and its last events, newest first."""
        state = await self._find_feed(request)
        given = unquote(request.path_params["key"])
        record = await self._find_record(state, given)
        if record is None:
            detail = f"record {show(given)}: is not stored in {state.feed}; /records/{state.feed} lists all records"
            raise Problem(HTTPStatus.NOT_FOUND, "unknown-record", detail)
        events, _ = await self.read_store.read_earlier(None, _HISTORY, feeds=[state.feed], keys=[record.key])
        text = None if record.body is None else msgspec.json.format(record.body).decode()
        summaries = [summarise(place, event) for place, event in events]
        return json_response(RecordDetail.of(record, feed=str(state.feed), text=text, events=summaries))

    async def _find_feed(self, request: Request) -> FeedState:
        feed = params.read_feed(request)
        await params.find_extent(self.read_store, feed)
        return next(state for state in await self.read_store.load_feeds() if state.feed == feed)

    async def _find_record(self, state: FeedState, given: str) -> StoredRecord | None:
        try:
            return await find_one(self.read_store, state, given)
        except ValueError as error:
            raise params.bad_request(f"key: {error}") from error
