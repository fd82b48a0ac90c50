"""Parses path, query and body of a request; raises a problem that names the mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Final, Self, TypeVar
from urllib.parse import unquote

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request

from dockbell.config import Config, format_duration, parse_duration, suggest
from dockbell.config.values import show
from dockbell.core.model import Feed
from dockbell.ports import Extent, ReadStore
from dockbell.web.client import Principal
from dockbell.web.responses import Problem

_FORM: Final = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9]{1,18})")
_CURSOR: Final = re.compile(r"(.+)\.([0-9]{1,18})")
PLACE_MOST: Final = 10**18 - 1
"""The largest number of an event or a command."""
LIMIT: Final = 100
LIMIT_MOST: Final = 1000
LIST_LIMIT: Final = 50
LIST_LIMIT_MOST: Final = 200
"""For lists that people look at."""
WAIT_MOST: Final = timedelta(seconds=60)
BODY_BYTES_MOST: Final = 65_536
_BODY_SECONDS: Final = 10


class Position(msgspec.Struct, frozen=True):
    """The event after which a reader goes on; written ``epoch.sequence``."""

    epoch: str  # the random mark of the store; a new store has another
    sequence: int  # the number of the last event that was seen; 0 before the first

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f'must be a position, "<epoch>.<sequence>" as dockbell returned it, got {show(text)}')
        return cls(match[1], int(match[2]))


class Cursor(msgspec.Struct, frozen=True):
    """The last record that a reader has seen, by its row; ``position`` is that of the first page."""

    position: Position
    row: int

    def __str__(self) -> str:
        return f"{self.position}.{self.row}"

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise ValueError(f"must be a cursor as dockbell returned it, got {show(text)}")
        return cls(Position.parse(match[1]), int(match[2]))


_T = TypeVar("_T")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty object."""


def read_principal(request: Request) -> Principal:
    """Return the client of a request, as the gate has identified it."""
    principal: Principal = request.state.principal
    return principal


def read_feed(request: Request) -> Feed:
    """Return the feed that the path names; :func:`find_extent` checks that it exists."""
    return Feed(unquote(request.path_params["source"]), unquote(request.path_params["resource"]))


def read_configured_feed(request: Request, config: Config) -> Feed:
    """Return the feed that the path names, which must be configured."""
    feed, known = read_feed(request), [f"{each.source}/{each.resource}" for each in config.feeds()]
    if str(feed) not in known:
        detail = f"feed {show(str(feed))}: is not configured; {suggest(str(feed), known)}"
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-feed", detail)
    return feed


def read_sink(request: Request, known: Collection[str]) -> str:
    """Return the sink that the path names, which must be known."""
    sink = unquote(request.path_params["sink"])
    if sink not in known:
        hint = suggest(sink, known) if known else "none is configured"
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-sink", f"sink {show(sink)}: is not known; {hint}")
    return sink


async def find_extent(read_store: ReadStore, feed: Feed) -> Extent:
    extent = await read_store.find_extent(feed)
    if extent is None:
        known = [str(state.feed) for state in await read_store.load_feeds()]
        hint = suggest(str(feed), known) if known else "none has been read yet"
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-feed", f"feed {show(str(feed))}: is not known; {hint}")
    return extent


def accepts(accept: str, media_type: str) -> bool:
    """Return whether a header ``Accept`` has a media type by name."""
    return any(each.partition(";")[0].strip().lower() == media_type for each in accept.split(","))


def check_query(request: Request, known: Collection[str]) -> None:
    """Refuse parameters that are not known, or are given twice."""
    names = [name for name, _ in request.query_params.multi_items()]
    for index, name in enumerate(names):
        if name not in known:
            hint = suggest(name, known) if known else "this path has none"
            raise bad_request(f"parameter {show(name)}: is not known; {hint}")
        if name in names[:index]:
            raise bad_request(f"parameter {name}: appears twice; send it once")


def read(name: str, text: str, parse: Callable[[str], _T]) -> _T:
    """Return what a parameter or header states; raise a problem where ``parse`` raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise bad_request(f"{name}: {error}") from None


async def read_body(request: Request, type_: type[_T]) -> _T:
    """Return the body, decoded as ``type_``; an empty body is an object without members.

    Raises:
        Problem: 400, it is malformed; 408, it did not come in time; 413, it is too large; 415, its type is not JSON.
    """
    raw = b""
    try:
        with anyio.fail_after(_BODY_SECONDS):
            async for part in request.stream():
                raw += part
                if len(raw) > BODY_BYTES_MOST:
                    raise too_large()
    except TimeoutError:
        detail = f"body: did not arrive within {_BODY_SECONDS} s; send it again"
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, "body", detail, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise bad_request("body: ends too early") from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and kind != "application/json":
        detail = f"body: must be application/json, got {show(kind)}"
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "body", detail)
    try:
        return msgspec.json.decode(raw or b"{}", type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        words = str(error)
        raise bad_request(f"body: {words[:1].lower()}{words[1:]}") from None


def too_large() -> Problem:
    detail = f"body: is larger than {BODY_BYTES_MOST} bytes; send less at once"
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", detail, headers={"Connection": "close"})


def read_limit(given: Mapping[str, str], *, default: int = LIMIT, most: int = LIMIT_MOST) -> int:
    return read_number("limit", given["limit"], 1, most) if "limit" in given else default


def read_number(name: str, text: str, least: int, most: int) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not (is_number and least <= int(text) <= most):
        raise bad_request(f"{name}: must be a whole number from {least} to {most}, got {show(text)}")
    return int(text)


def read_wait(given: Mapping[str, str]) -> timedelta:
    """Return how long to wait for events: at most for so long that no proxy closes the silent connection."""
    return read("wait", given["wait"], _parse_wait) if "wait" in given else timedelta()


def check_position(feed: Feed, epoch: str, extent: Extent, position: Position) -> None:
    """Refuse a position from which a reader cannot go on without a loss.

    Raises:
        Problem: 410, with the oldest position that there is, and where the stored records are.
    """
    if position.epoch != epoch:
        fact = "belongs to another epoch of the store"
    elif position.sequence > extent.last:
        fact = f"is beyond the last event, {extent.last}"
    elif position.sequence < extent.pruned:
        fact = f"is too old, events up to {extent.pruned} are no longer kept"
    else:
        return
    oldest = Position(epoch, extent.pruned)
    members = {"oldest": str(oldest), "feed": f"../../feeds/{feed}?after={oldest}", "state": f"../../state/{feed}"}
    detail = f"position {position}: {fact}; read the state, which has a position to resume from"
    links = f'<{members["state"]}>; rel="index", <{members["feed"]}>; rel="first"'
    raise Problem(HTTPStatus.GONE, "position-gone", detail, members=members, headers={"Link": links})


def bad_request(detail: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "bad-request", detail)


def _parse_wait(text: str) -> timedelta:
    wait = parse_duration(text)
    if wait > WAIT_MOST:
        raise ValueError(f"must be at most {format_duration(WAIT_MOST)}, got {show(text)}; then send another request")
    return wait
