"""``GET /sinks/{sink}/dead``: dead letters, page by page; and how those are named that something is done with."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import write_moment
from dockbell.admin.replaying import find_sinks_with_dead
from dockbell.config import Config
from dockbell.config.values import show
from dockbell.core.model import JSON, Feed
from dockbell.core.publishing.settlement import DeadLetter
from dockbell.ports import CommandStore, Selection, Undelivered
from dockbell.web import params
from dockbell.web.responses import json_response

CHOSEN_MOST: Final = 200

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Letter(msgspec.Struct, forbid_unknown_fields=True):
    """One dead letter of a sink."""

    feed: Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+$")]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=10**18 - 1)]
    key: str


class Letters(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Some dead letters of a sink, or all of them."""

    letters: Annotated[list[Letter], msgspec.Meta(max_length=CHOSEN_MOST)] = []
    all: bool = False

    def select(self) -> Iterator[Selection]:
        """Yield what is chosen.

        Raises:
            Problem: 400, nothing is chosen, or all and some.
        """
        if self.all == bool(self.letters):
            raise params.bad_request('letters: choose some, or all of them by "all": true alone')
        if self.all:
            yield Selection()
        for letter in self.letters:
            feed = Feed(*letter.feed.split("/"))
            yield Selection((feed,), (letter.key,), first=letter.sequence, last=letter.sequence)


class DeadLetters:
    """The endpoint.

    Args:
        command_store: Where they can be read.
        config: Returns the configuration that is followed.
    """

    def __init__(self, command_store: CommandStore, config: Callable[[], Config]) -> None:
        self._command_store = command_store
        self._config = config

    async def answer(self, request: Request) -> Response:
        """Answer with some dead letters of a sink.

        Raises:
            Problem: 400, 404.
        """
        given = params.read_query(request, "limit", "after")
        sink = params.read_sink(request, [*self._config().sinks, *await find_sinks_with_dead(self._command_store)])
        limit = params.read_limit(given, default=params.LIST_LIMIT, most=params.LIST_LIMIT_MOST)
        after = params.read("after", given["after"], lambda text: _parse(text, sink)) if "after" in given else None
        total = sum(group.letters for group in await self._command_store.count_dead(sink, Selection()))
        found = await self._command_store.read_dead(sink, Selection(), limit + 1, after)
        following = _write(found[limit - 1]) if len(found) > limit else None
        body = {"letters": [_describe(each) for each in found[:limit]], "next": following, "total": total}
        return json_response(body)


def _describe(each: Undelivered) -> dict[str, JSON]:
    letter = each.letter
    return {
        "feed": str(letter.feed),
        "sequence": letter.sequence,
        "key": letter.key,
        "type": each.type or None,
        "error": letter.error,
        "attempts": letter.attempts,
        "died_at": write_moment(letter.died_at),
        "holds": each.holds,
    }


def _write(last: Undelivered) -> str:
    letter = last.letter
    place = [letter.feed.source, letter.feed.resource, letter.sequence, letter.key]
    return urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()


def _parse(text: str, sink: str) -> Undelivered:
    """Return something that stands where the dead letter stood after which to go on.

    Raises:
        ValueError: The text states no such place.
    """
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        source, resource, sequence, key = msgspec.json.decode(
            raw, type=tuple[str, str, Annotated[int, msgspec.Meta(ge=0, le=10**18 - 1)], str]
        )
    except (ValueError, msgspec.MsgspecError):
        raise ValueError(f"must be a cursor as it was given, got {show(text)}") from None
    return Undelivered(sink, DeadLetter(Feed(source, resource), key, sequence, 0, _NEVER, ""), "", holds=False)
