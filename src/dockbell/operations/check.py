"""What would fail if the daemon ran: the store, the API, the sinks; each is asked once, and nothing is changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import anyio

from dockbell.config import Config, FeedSettings
from dockbell.core import pointer
from dockbell.core.document import decode
from dockbell.core.key import key_of
from dockbell.core.model import RESOURCES, ClockSource, Feed, Page, Urgency
from dockbell.core.reading.request import MAX_LIMIT
from dockbell.core.reading.shape import learn_shape
from dockbell.errors import DockbellError, SchemaMismatch, SourceUnavailable
from dockbell.operations.status import format_age
from dockbell.ports import Sink, Source
from dockbell.telemetry import Fact, RequestSent, SourceWaits, Telemetry

_PATIENCE: Final = timedelta(minutes=1)
_NO_ANSWER: Final = "no answer within a minute"
_PROVISIONAL: Final = "learned, so provisional: no events until a whole pass has proved it unique"
_SKEW_TOLD: Final = timedelta(seconds=2)
_NO_DATE: Final = {
    ClockSource.RESET: "no Date that can be believed: time is taken from x-ratelimit-reset",
    ClockSource.LOCAL: "no Date that can be believed: time is taken from our own clock",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one thing that a daemon needs.

    Attributes:
        subject: ``store``, ``main/shipments``, ``sink erp``.
        fails: Whether the daemon would fail at it now.
        detail: What was found, or why it fails and what to do.
    """

    subject: str
    fails: bool
    detail: str


async def check(
    config: Config,
    *,
    probe_store: Callable[[], Awaitable[str]],
    open_source: Callable[[str, Telemetry], Source],
    open_sink: Callable[[str], Sink],
) -> Sequence[Finding]:
    """Look at the store, ask one page of each feed, connect to each sink; return what was found, in this order.

    Args:
        config: What to check.
        probe_store: Looks at the store, and says what it found.
        open_source: Returns the source of a name.
        open_sink: Returns the sink of a name.
    """
    looks = [
        partial(_check_store, probe_store),
        *(partial(_check_source, config, name, open_source) for name in config.sources),
        *(partial(_check_sink, name, open_sink) for name in config.sinks),
    ]
    found: dict[int, Sequence[Finding]] = {}

    async def note(place: int, look: Callable[[], Awaitable[Sequence[Finding]]]) -> None:
        found[place] = await look()

    async with anyio.create_task_group() as group:
        for place, look in enumerate(looks):
            group.start_soon(note, place, look)
    return [finding for place in sorted(found) for finding in found[place]]


async def _check_store(probe: Callable[[], Awaitable[str]]) -> Sequence[Finding]:
    return [await _find("store", probe)]


async def _check_sink(name: str, open_sink: Callable[[str], Sink]) -> Sequence[Finding]:
    async def probe() -> str:
        return await open_sink(name).probe()

    return [await _find(f"sink {name}", probe)]


async def _check_source(
    config: Config, name: str, open_source: Callable[[str, Telemetry], Source]
) -> Sequence[Finding]:
    ear = _Ear()
    try:
        source = open_source(name, Telemetry(ear.hear))
    except DockbellError as error:
        return [Finding(f"source {name}", fails=True, detail=str(error))]
    try:
        return [await _check_feed(source, each, ear) for each in config.feeds() if each.source == name]
    finally:
        await source.aclose()


class _Ear:
    """Hears what becomes of the one request under way, and ends it where the source would ask again."""

    def __init__(self) -> None:
        self.answer: RequestSent | None = None
        self.problem = ""
        self.scope = anyio.CancelScope()

    def hear(self, fact: Fact) -> None:
        match fact:
            case RequestSent():
                self.answer = fact
            case SourceWaits():
                self.problem = fact.reason
                self.scope.cancel()


async def _find(subject: str, probe: Callable[[], Awaitable[str]]) -> Finding:
    try:
        with anyio.fail_after(_PATIENCE.total_seconds()):
            return Finding(subject, fails=False, detail=await probe())
    except DockbellError as error:
        return Finding(subject, fails=True, detail=str(error))
    except TimeoutError:
        return Finding(subject, fails=True, detail=_NO_ANSWER)


async def _check_feed(source: Source, each: FeedSettings, ear: _Ear) -> Finding:
    async def ask() -> str:
        settings = each.settings
        with anyio.CancelScope() as ear.scope:
            page = await source.read_page(
                each.resource,
                limit=1 if settings.key else MAX_LIMIT,  # a key is learned from the whole first page
                query=settings.query,
                expand=settings.expand,
                urgency=Urgency.OPERATOR,
            )
            return ", ".join([*_describe_answer(page, ear.answer), _describe_shape(page, each)])
        raise SourceUnavailable(ear.problem)

    return await _find(str(Feed(each.source, each.resource)), ask)


def _describe_answer(page: Page, answer: RequestSent | None) -> Iterator[str]:
    assert answer is not None
    yield f"HTTP {answer.status} in {answer.round_trip / timedelta(milliseconds=1):.0f} ms"
    yield f'records in "{page.envelope}"'
    yield "no rate limit headers" if answer.remaining is None else f"{answer.remaining} requests left"
    if page.clock is ClockSource.DATE:
        if page.asked_at - page.received_at > _SKEW_TOLD:
            yield f"clock ahead of ours by {format_age(page.asked_at - page.received_at)}"
        elif page.received_at - page.answered_at > _SKEW_TOLD:
            yield f"clock behind ours by {format_age(page.received_at - page.answered_at)}"
    else:
        yield _NO_DATE[page.clock]


def _describe_shape(page: Page, each: FeedSettings) -> str:
    """Say what identifies and dates the records, as the first page will show it.

    Raises:
        SchemaMismatch: Nothing identifies them.
    """
    if not page.records:
        return "no records"
    settings, resource = each.settings, RESOURCES[each.resource]
    try:
        records = [decode(record) for record in page.records]
        shape = learn_shape(resource.singular, records, key=settings.key, updated_at=settings.updated_at)
        key_of(records[0], [pointer.parse(part) for part in shape.key])
    except ValueError as error:
        raise SchemaMismatch(f"{error}; set key in [resources.{resource.name}]") from error
    provisional = "" if settings.key else f" ({_PROVISIONAL})"
    return f"key {' + '.join(shape.key)}{provisional}, dated by {shape.updated_at or 'nothing'}"
