"""What did not arrive, read from dockbell: its pull feeds and its stored records. It needs httpx.

A *position*, ``<epoch>.<sequence>``, says how far a feed was read; save the latest where it survives a restart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from typing import Final, NamedTuple, Self
from urllib.parse import quote

import httpx

from dockbell.core.document import decode
from dockbell.core.model import JSON
from dockbell.subscriber.errors import NotAnEvent, PositionLost, PullRefused, PullUnavailable
from dockbell.subscriber.events import Event, parse_batch
from dockbell.subscriber.state import SequenceGaps, State

LIMIT: Final = 500
TIMEOUT: Final = timedelta(seconds=20)
_NO_WAIT: Final = timedelta()
_MILLISECOND: Final = timedelta(milliseconds=1)
_PROBLEM: Final = "urn:dockbell:problem:"


class Batch(NamedTuple):
    """Some events of a feed.

    Attributes:
        events: In order, none left out.
        position: Behind the last of them; where to go on.
    """

    events: list[Event]
    position: str


class PullFeeds:
    """Reads the pull feeds of one dockbell; to be entered with ``async with``. Feeds are ``SOURCE/RESOURCE``.

    Every method raises :class:`PullUnavailable` when there is no usable answer for now, and :class:`PullRefused` when
    dockbell does not accept the token, or knows no such feed. Nothing is tried again here.

    Args:
        url: Where its ``[web]`` listens, ``http://127.0.0.1:8470``.
        token: That of ``[web]``, where it has one.
        timeout: How long an answer may take, waiting for events left out.
        transport: For tests and proxies.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: timedelta = TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._timeout = timeout
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    # Events ----------------------------------------------------------------------------------------------------------

    async def read(
        self, feed: str, after: str | None = None, *, limit: int = LIMIT, wait: timedelta = _NO_WAIT
    ) -> Batch:
        """Return the events after a position, or from the oldest that is kept; none at the end of the feed.

        They are ``limit`` at most, up to 1000. ``wait`` is how long, up to a minute, dockbell may wait for an event
        where there is none yet.

        Raises:
            PositionLost: Events behind it are no longer kept, or it is of another life of the store.
        """
        parameters = {"limit": str(limit)}
        if after is not None:
            parameters["after"] = after
        if wait:
            # Rounded up: not to wait at all would be asking in circles.
            parameters["wait"] = f"{-(-wait // _MILLISECOND)}ms"
        answer = await self._get(f"/feeds/{_quote(feed)}", parameters, wait=wait)
        position = answer.headers.get("dockbell-position", "")
        try:
            events = parse_batch(answer.content)
            read_position(position)
        except (NotAnEvent, ValueError) as error:
            raise PullUnavailable(f"feed {feed}: the answer is no batch of events, {error}") from error
        if events:
            gaps = SequenceGaps(events[0].sequence - 1 if after is None else read_position(after)[1])
            if missing := next(filter(None, map(gaps.find, events)), None):
                left_out = f"{missing.first} to {missing.last}"
                raise PullUnavailable(f"feed {feed}: the answer leaves out events {left_out}; ask without a cache")
        return Batch(events, position)

    async def follow(self, feed: str, after: str | None = None, *, wait: timedelta = _NO_WAIT) -> AsyncIterator[Batch]:
        """Yield batches until the end of the feed; with ``wait`` for ever, as events come.

        Save the position of a batch once you have done what its events want.

        Raises:
            PositionLost: See :meth:`read`.
        """
        while True:
            batch = await self.read(feed, after, wait=wait)
            if batch.events:
                yield batch
            elif not wait:
                return
            after = batch.position

    # State -----------------------------------------------------------------------------------------------------------

    async def load(self, state: State, feed: str) -> str:
        """Read all stored records of a feed into a state; return the position from which on to follow the feed.

        Events may be applied to the state meanwhile; what they tell is not overwritten by what is older.

        Raises:
            PositionLost: The store began another life meanwhile; load again.
            PullUnavailable: Also while dockbell has not read the whole list itself yet; what there is was taken in.
        """
        state.unread.add(feed)
        listed: set[str] = set()
        position, parameters, is_complete = "", {"limit": str(LIMIT)}, True
        while True:
            page = _decode(await self._get(f"/state/{_quote(feed)}", parameters))
            try:
                position = position or page["position"]
                _, sequence = read_position(position)
                for each in page["records"]:
                    place = f"{feed}/{each['key']}"
                    listed.add(place)
                    state.put(place, revision=each["revision"], sequence=sequence, record=each["record"])
                following, is_complete = page["next"], page["complete"] and is_complete
            except (KeyError, TypeError, ValueError) as error:
                raise PullUnavailable(f"state {feed}: the answer is no page of records, {error!r}") from error
            if following is None and not is_complete:
                raise PullUnavailable(f"state {feed}: dockbell has not read the whole list yet; load it again later")
            if following is None:
                state.close(feed, listed, sequence)
                return position
            parameters = dict(httpx.QueryParams(following.removeprefix("?")))

    async def refetch(self, state: State, place: str) -> None:
        """Read one stored record, named by its ``partitionkey``, into a state."""
        source, resource, key = place.split("/", 2)
        answer = await self._ask(f"/state/{_quote(f'{source}/{resource}')}/{quote(key, safe='')}", {})
        kind = _read_problem(answer).get("type")
        if kind == f"{_PROBLEM}unknown-record":
            state.drop(place)
            return
        if kind != f"{_PROBLEM}record-gone":
            _check(answer)
        body = _decode(answer)
        try:
            _, sequence = read_position(body["position"])
            state.put(place, revision=body["revision"], sequence=sequence, record=body.get("record"))
        except (KeyError, TypeError, ValueError) as error:
            raise PullUnavailable(f"state {place}: the answer is no record, {error!r}") from error

    async def mend(self, state: State) -> None:
        """Read what a state lacks: its ``unread`` feeds and ``stale`` records; nothing where it lacks nothing."""
        for feed in sorted(state.unread):
            await self.load(state, feed)
        for place in sorted(state.stale):
            await self.refetch(state, place)

    async def catch_up(self, state: State, feed: str, after: str | None) -> str:
        """Bring a state up to date with all of a feed; return the position to catch up from the next time.

        The state has everything up to the position ``after``. All stored records are read where that is None, or
        dockbell cannot go on from it.
        """
        if after is None:
            return await self.load(state, feed)
        try:
            async for batch in self.follow(feed, after):
                for event in batch.events:
                    state.apply(event)
                after = batch.position
        except PositionLost as error:
            if error.oldest is None or read_position(error.oldest)[0] != read_position(after)[0]:
                state.forget(feed)
            return await self.load(state, feed)
        return await self.load(state, feed) if feed in state.unread else after

    # HTTP ------------------------------------------------------------------------------------------------------------

    async def _get(self, path: str, parameters: dict[str, str], *, wait: timedelta = _NO_WAIT) -> httpx.Response:
        answer = await self._ask(path, parameters, wait=wait)
        _check(answer)
        return answer

    async def _ask(self, path: str, parameters: dict[str, str], *, wait: timedelta = _NO_WAIT) -> httpx.Response:
        timeout = httpx.Timeout(self._timeout.total_seconds(), read=(self._timeout + wait).total_seconds())
        try:
            return await self._client.get(path, params=parameters, timeout=timeout)
        except httpx.HTTPError as error:
            raise PullUnavailable(f"{path}: {type(error).__name__}: {error}") from error


def read_position(position: str) -> tuple[str, int]:
    """Return epoch and sequence of a position.

    Raises:
        ValueError: It is none.
    """
    epoch, dot, sequence = position.rpartition(".")
    if not (epoch and dot and sequence.isascii() and sequence.isdigit()):
        raise ValueError(f'position: must be "<epoch>.<sequence>", got {position[:80]!r}')
    return epoch, int(sequence)


def _quote(feed: str) -> str:
    source, _, resource = feed.partition("/")
    return f"{quote(source, safe='')}/{quote(resource, safe='')}"


def _check(answer: httpx.Response) -> None:
    """Raise what an answer other than 200 stands for."""
    status = answer.status_code
    if status == HTTPStatus.OK:
        return
    problem = _read_problem(answer)
    text = f"{answer.request.url.path}: HTTP {status}, {problem.get('detail') or answer.reason_phrase}"
    if status == HTTPStatus.GONE:
        raise PositionLost(text, problem.get("oldest"))
    is_refusal = status < HTTPStatus.INTERNAL_SERVER_ERROR
    passes = not is_refusal or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
    raise PullUnavailable(text) if passes else PullRefused(text)


def _read_problem(answer: httpx.Response) -> dict[str, JSON]:
    """Return the members of an answer's Problem Details (RFC 9457); none where it is fine, or says nothing."""
    problem: JSON = {}
    with suppress(ValueError):
        problem = {} if answer.status_code == HTTPStatus.OK else decode(answer.content)
    return problem if isinstance(problem, dict) else {}


def _decode(answer: httpx.Response) -> JSON:
    try:
        return decode(answer.content)
    except ValueError as error:
        raise PullUnavailable(f"{answer.request.url.path}: {error}") from error
