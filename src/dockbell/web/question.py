"""What a request asks for: a feed, parameters, a position; each refused in plain words where it cannot be meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import unquote

from starlette.requests import Request

from dockbell.config import format_duration, parse_duration, suggest
from dockbell.config.values import show
from dockbell.core.model import Feed
from dockbell.ports import Extent, View
from dockbell.web.position import Position
from dockbell.web.problem import Problem

LIMIT: Final = 100
LIMIT_MOST: Final = 1000
WAIT_MOST: Final = timedelta(seconds=60)
_T = TypeVar("_T")


def read_feed(request: Request) -> Feed:
    """Return the feed that the path names; whether there is one, its extent tells."""
    return Feed(unquote(request.path_params["source"]), unquote(request.path_params["resource"]))


async def find_extent(view: View, feed: Feed) -> Extent:
    """Return which events of a feed there are.

    Raises:
        Problem: 404, there is no such feed.
    """
    extent = await view.find_extent(feed)
    if extent is None:
        known = [str(state.feed) for state in await view.load_feeds()]
        hint = suggest(str(feed), known) if known else "none has been read yet"
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-feed", f"feed {show(str(feed))}: is not known; {hint}")
    return extent


def read_parameters(request: Request, *known: str) -> Mapping[str, str]:
    """Return the parameters of a request.

    Raises:
        Problem: 400, one is not known or is given twice.
    """
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            hint = suggest(name, known) if known else "there are none here"
            raise _bad(f"parameter {show(name)}: is not known; {hint}")
        if name in given:
            raise _bad(f"parameter {name}: is given twice; keep one")
        given[name] = value
    return given


def read(name: str, text: str, parse: Callable[[str], _T]) -> _T:
    """Return what a parameter or header states.

    Raises:
        Problem: 400, ``parse`` raised ValueError.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise _bad(f"{name}: {error}") from None


def read_limit(given: Mapping[str, str]) -> int:
    """Return how many are asked for at most.

    Raises:
        Problem: 400, it is no number from 1 to 1000.
    """
    return read("limit", given["limit"], _parse_limit) if "limit" in given else LIMIT


def read_wait(given: Mapping[str, str]) -> timedelta:
    """Return how long an answer may take where there is nothing yet.

    Raises:
        Problem: 400, it is no duration, or a longer one than what lies between may keep a silent connection for.
    """
    return read("wait", given["wait"], _parse_wait) if "wait" in given else timedelta()


def check_position(feed: Feed, epoch: str, extent: Extent, position: Position) -> None:
    """Refuse a position from which a reader cannot go on without a loss.

    Raises:
        Problem: 410, with the oldest position that there is, and where the stored records are.
    """
    if position.epoch != epoch:
        fact = "belongs to another life of the store"
    elif position.sequence > extent.last:
        fact = f"is beyond the last event, {extent.last}"
    elif position.sequence < extent.pruned:
        fact = f"is too old, events up to {extent.pruned} are no longer kept"
    else:
        return
    oldest = Position(epoch, extent.pruned)
    members = {"oldest": str(oldest), "feed": f"../../feeds/{feed}?after={oldest}", "state": f"../../state/{feed}"}
    detail = f"position {position}: {fact}; read the state, which tells a position to go on from"
    links = f'<{members["state"]}>; rel="index", <{members["feed"]}>; rel="first"'
    raise Problem(HTTPStatus.GONE, "position-gone", detail, members=members, headers={"Link": links})


def _bad(detail: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "bad-request", detail)


def _parse_limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(LIMIT_MOST)) and 0 < int(text) <= LIMIT_MOST):
        raise ValueError(f"must be a whole number from 1 to {LIMIT_MOST}, got {show(text)}")
    return int(text)


def _parse_wait(text: str) -> timedelta:
    wait = parse_duration(text)
    if wait > WAIT_MOST:
        raise ValueError(f"must be at most {format_duration(WAIT_MOST)}, got {show(text)}; ask again after it")
    return wait
