"""``GET /sinks/{sink}/dead``: dead letters, page by page; and how those are named that something is done with."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import Count, Model, Time
from dockbell.admin.replaying import find_sinks_with_dead
from dockbell.config import Config
from dockbell.config.values import show
from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import DeadLetter
from dockbell.ports import CommandStore, Selection, Undelivered
from dockbell.web import params
from dockbell.web.responses import json_response

CHOSEN_MOST: Final = 200

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Letter(msgspec.Struct, forbid_unknown_fields=True):
    """One dead letter of a sink."""

    feed: Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+$")]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=params.PLACE_MOST)]
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
            raise params.bad_request('letters: must be a list of dead letters, or "all" true; send one of the two')
        if self.all:
            yield Selection()
        for letter in self.letters:
            feed = Feed(*letter.feed.split("/"))
            yield Selection((feed,), (letter.key,), first=letter.sequence, last=letter.sequence)


class LetterModel(Model):
    feed: str
    sequence: Count
    key: str
    type: str | None
    error: str
    answer: str
    attempts: Count
    died_at: Time
    holds: bool


class LetterList(Model):
    letters: list[LetterModel]
    next: str | None
    total: Count


class DeadLetters(msgspec.Struct, frozen=True):
    command_store: CommandStore
    config: Callable[[], Config]

    async def answer(self, request: Request) -> Response:
        given = request.query_params
        sink = params.read_sink(request, [*self.config().sinks, *await find_sinks_with_dead(self.command_store)])
        limit = params.read_limit(given, default=params.LIST_LIMIT, most=params.LIST_LIMIT_MOST)
        after = params.read("after", given["after"], lambda text: _parse(text, sink)) if "after" in given else None
        total = sum(group.letters for group in await self.command_store.count_dead(sink, Selection()))
        found = await self.command_store.read_dead(sink, Selection(), limit + 1, after)
        following = _write(found[limit - 1]) if len(found) > limit else None
        return json_response(LetterList([_describe(each) for each in found[:limit]], following, total))


def _describe(each: Undelivered) -> LetterModel:
    return LetterModel.of(each.letter, feed=str(each.letter.feed), type=each.type or None, holds=each.holds)


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
            raw, type=tuple[str, str, Annotated[int, msgspec.Meta(ge=0, le=params.PLACE_MOST)], str]
        )
    except (ValueError, msgspec.MsgspecError):
        raise ValueError(f"must be a cursor as dockbell returned it, got {show(text)}") from None
    return Undelivered(sink, DeadLetter(Feed(source, resource), key, sequence, 0, _NEVER, ""), "", holds=False)
