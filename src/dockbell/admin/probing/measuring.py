"""The measurements of one feed, each a request or two; what they show is kept for the report and the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from dockbell.admin.probing.asking import Asker, NoMore
from dockbell.admin.probing.signals import SignalFound, find_signal
from dockbell.config import ResourceSettings
from dockbell.config.resources import SIGNALS
from dockbell.core import pointer
from dockbell.core.document import decode
from dockbell.core.key import key_of
from dockbell.core.model import JSON, RESOURCES, Feed, Page
from dockbell.core.moment import parse_moment
from dockbell.core.reading.embedding import PAIRS
from dockbell.core.reading.request import Request, format_since, list_request, shipment_request
from dockbell.core.reading.response import Response
from dockbell.core.reading.response_page import read_page
from dockbell.core.reading.shape import Shape, ShapeUnknown, learn_shape
from dockbell.core.reading.survey import Stamps, read_stamps, suggest_key
from dockbell.errors import CursorExpired, DockbellError, SchemaMismatch, SourceRefused

RELATIONS: Final = {
    "shipments": ("packages", "line_items", "invoices"),
    "packages": ("shipment",),
    "items": ("stock",),
    "stock": ("item", "warehouse"),
    "warehouses": ("stock",),
}
"""What ``expand`` may embed: the specification's examples, and guesses by the names of the resources."""

_ABROAD: Final = timedelta(days=1)
_BEFORE: Final = timedelta(seconds=2)
_UNKNOWN_NUMBER: Final = 987_654_321_987
_UNKNOWN_TEXT: Final = "dockbell-probe-no-such-id"


class Reading(msgspec.Struct, frozen=True):
    """One page as it was read: the response comes without its body, the envelope is the decoded rest of it."""

    request: Request
    response: Response
    page: Page
    records: Sequence[JSON]
    envelope: Mapping[str, JSON]


class Bound(msgspec.Struct, frozen=True):
    """A listing from the exact time of one of its records on, or from a little later."""

    record: JSON
    moment: datetime
    reading: Reading


@dataclass(slots=True)
class Measured:
    """What is known of one feed so far; ``None`` is not measured."""

    feed: Feed
    settings: ResourceSettings
    problem: str = ""  # why it cannot be read; empty when it can
    refused: bool = False  # whether the API refuses it, rather than not answering for now
    unmeasured: dict[str, str] = field(default_factory=dict)  # why a measurement came to nothing, by its name
    pages: list[Reading] = field(default_factory=list)  # the first pages, in order
    shape: Shape | None = None
    guessed: bool = False  # whether the key has none of the usual names and was found by its values
    again: Reading | None = None  # the first page, read again seconds later
    same_cursor: Reading | None = None  # the second page, read again with the same cursor
    cursor_lost: str = ""  # what the API said when a cursor was used twice
    bound: Bound | None = None  # asked from a record's exact time on
    finer: Bound | None = None  # asked from the smallest step later on
    future: Reading | None = None  # asked from a day ahead on
    by_default: Reading | None = None  # the first page without the filter ``status``
    expanded: dict[str, list[str] | None] = field(default_factory=dict)
    """For each relation, the members that it adds to a record; None where the API refuses it."""
    unknown: Response | None = None  # the answer to a shipment that does not exist
    details: list[str] | None = None  # the members that only a shipment read by itself has
    conditional: int | None = None  # the status of the first page asked with its own ``ETag``
    carrier: Measured | None = None  # the feed whose polls may show its changes
    signal: SignalFound | None = None  # whether they do

    @property
    def resource(self) -> str:
        return self.feed.resource

    @property
    def records(self) -> list[JSON]:
        return [record for page in self.pages for record in page.records]

    @property
    def at_end(self) -> bool:
        """Whether the pages read are the whole list."""
        return bool(self.pages) and self.pages[-1].page.next_cursor is None

    def stamps(self) -> Stamps | None:
        if self.shape is None or self.shape.updated_at is None:
            return None
        tokens = pointer.parse(self.shape.updated_at)
        now = max(each.page.answered_at for each in self.pages)
        return read_stamps([pointer.resolve(record, tokens) for record in self.records], now)

    def stamp_of(self, record: JSON) -> datetime | None:
        assert self.shape is not None
        assert self.shape.updated_at is not None
        return parse_moment(pointer.resolve(record, pointer.parse(self.shape.updated_at)))

    def keys(self, records: Sequence[JSON]) -> list[str]:
        """Return the key strings of records, in order; none of those that have none."""
        if self.shape is None:
            return []
        tokens = [pointer.parse(part) for part in self.shape.key]
        found = []
        for record in records:
            try:
                found.append(key_of(record, tokens).text)
            except ValueError:
                continue
        return found


# Each measurement ----------------------------------------------------------------------------------------------------


async def _read(measured: Measured, asker: Asker, request: Request) -> Reading:
    response = await asker.ask(request)
    envelope = measured.pages[0].page.envelope if measured.pages and measured.pages[0].records else None
    page = read_page(measured.resource, response, envelope=envelope)
    try:
        records = [decode(record) for record in page.records]
        body = decode(response.body)
    except ValueError as error:
        raise SchemaMismatch(f'resource "{measured.resource}": a record cannot be read: {error}') from error
    outer, _, inner = page.envelope.rpartition(".")
    rest = {name: value for name, value in body.items() if name != page.envelope}
    if outer:
        rest[outer] = {name: value for name, value in body[outer].items() if name != inner}
    return Reading(request, replace(response, body=b""), replace(page, records=()), records, rest)


def _listing(measured: Measured, *, since: str | None = None, **more: object) -> Request:
    """Return the request for a page as the feed's runs would ask; ``since`` is sent as it is."""
    settings = measured.settings
    request = list_request(measured.resource, query=settings.query, expand=settings.expand, **more)  # type: ignore[arg-type]  # limit and cursor
    return request if since is None else replace(request, params=(*request.params, ("updated_since", since)))


async def read_first(measured: Measured, asker: Asker) -> None:
    """Read the first page: envelope, page size, key, timestamps."""
    try:
        first = await _read(measured, asker, _listing(measured))
    except DockbellError as error:
        measured.problem, measured.refused = str(error), isinstance(error, SourceRefused)
        return
    measured.pages.append(first)
    _learn(measured)


async def read_next(measured: Measured, asker: Asker) -> None:
    if measured.at_end:
        return
    cursor = measured.pages[-1].page.next_cursor
    measured.pages.append(await _read(measured, asker, _listing(measured, cursor=cursor)))
    _learn(measured)


def _learn(measured: Measured) -> None:
    records, settings = measured.records, measured.settings
    if not records:
        return
    singular = RESOURCES[measured.resource].singular
    try:
        # On the first page, as a first run would.
        page = measured.pages[0].records or records
        measured.shape = learn_shape(singular, page, key=settings.key, updated_at=settings.updated_at)
        measured.guessed = False
    except ShapeUnknown:
        key = suggest_key(records)
        measured.guessed = key is not None
        measured.shape = (
            None if key is None else learn_shape(singular, records, key=key, updated_at=settings.updated_at)
        )


async def read_unknown(measured: Measured, asker: Asker) -> None:
    if measured.shape is None or not RESOURCES[measured.resource].addressable:
        return
    is_number = type(_key_of_first(measured, measured.shape)) is int
    measured.unknown = await asker.look(shipment_request(str(_UNKNOWN_NUMBER) if is_number else _UNKNOWN_TEXT))


async def read_detail(measured: Measured, asker: Asker) -> None:
    """Ask for one shipment by itself: which members does it have that the listing has not."""
    if measured.shape is None or not RESOURCES[measured.resource].addressable:
        return
    found = _key_of_first(measured, measured.shape)
    if isinstance(found, list):
        return
    response = await asker.ask(shipment_request(str(found)))
    try:
        detail = decode(response.body)
        measured.details = sorted(detail.keys() - measured.records[0].keys())
    except (ValueError, AttributeError) as error:
        raise SchemaMismatch("GET /v1/shipments/{id}: the response is not a JSON object") from error


def _key_of_first(measured: Measured, shape: Shape) -> object:
    return key_of(measured.records[0], [pointer.parse(part) for part in shape.key]).id


async def read_bound(measured: Measured, asker: Asker) -> None:
    """Ask from the newest record's own time on: is ``updated_since`` honoured, and is its bound inclusive."""
    if (newest := _newest(measured)) is not None:
        record, moment = newest
        measured.bound = await _read_from(measured, asker, record, moment)


async def read_finer(measured: Measured, asker: Asker) -> None:
    """Ask from the smallest step after the newest record's time on: is the bound as precise as the timestamps."""
    newest, stamps = _newest(measured), measured.stamps()
    if newest is not None and stamps is not None and stamps.digits:
        record, moment = newest
        step = timedelta(seconds=10.0**-stamps.digits)
        measured.finer = await _read_from(measured, asker, record, moment + step)


async def _read_from(measured: Measured, asker: Asker, record: JSON, moment: datetime) -> Bound:
    stamps = measured.stamps()
    timespec = {0: "seconds", 3: "milliseconds"}.get(stamps.digits if stamps else 0, "microseconds")
    asked = moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"
    return Bound(record, moment, await _read(measured, asker, _listing(measured, since=asked)))


def _newest(measured: Measured) -> tuple[JSON, datetime] | None:
    """Return the record last changed, of those that are not dated ahead of the service's clock, and when."""
    if measured.stamps() is None or not RESOURCES[measured.resource].polled:
        return None
    now = measured.pages[-1].page.answered_at
    dated = [(record, moment) for record in measured.records if (moment := measured.stamp_of(record)) is not None]
    return max((each for each in dated if each[1] <= now), key=lambda each: each[1], default=None)


async def read_future(measured: Measured, asker: Asker) -> None:
    """Ask from a day ahead on: nothing may come."""
    if not RESOURCES[measured.resource].polled:
        return
    stamps = measured.stamps()
    now = measured.pages[-1].page.answered_at
    ahead = (max(now, stamps.newest) if stamps else now) + _ABROAD
    since = ahead.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
    measured.future = await _read(measured, asker, _listing(measured, since=since))


async def read_first_again(measured: Measured, asker: Asker) -> None:
    """Read the first page again: its order, arrays without order, members that never rest."""
    measured.again = await _read(measured, asker, _listing(measured))


async def read_same_cursor(measured: Measured, asker: Asker) -> None:
    if len(measured.pages) > 1:
        request = measured.pages[1].request
        try:
            measured.same_cursor = await _read(measured, asker, request)
        except CursorExpired as error:
            measured.cursor_lost = str(error)


async def read_by_default(measured: Measured, asker: Asker) -> None:
    """Read items without the filter ``status``: what does it hide."""
    query = {name: value for name, value in measured.settings.query.items() if name != "status"}
    if measured.settings.query.get("status") == "all":
        request = list_request(measured.resource, query=query, expand=measured.settings.expand)
        measured.by_default = await _read(measured, asker, request)


async def read_expanded(measured: Measured, asker: Asker) -> None:
    """Ask for one record with all relations embedded; where that is refused, with each by itself."""
    relations = RELATIONS[measured.resource]
    alternatives = [relations] if len(relations) == 1 else [relations, *((relation,) for relation in relations)]
    for names in alternatives:
        request = list_request(measured.resource, limit=1, query=measured.settings.query, expand=names)
        try:
            reading = await _read(measured, asker, request)
        except SourceRefused:
            measured.expanded |= dict.fromkeys(names)
            continue
        plain = {name for record in measured.records for name in record}
        new = sorted({name for record in reading.records for name in record} - plain)
        for relation in names:
            measured.expanded[relation] = new if len(names) == 1 else [name for name in new if name == relation]
        if names is relations:
            return


async def read_signal(measured: Measured, asker: Asker) -> None:
    """Ask what the carrier calls modified since the first page was read, with this feed's records embedded."""
    carrier, again = measured.carrier, measured.again
    pair = next((pair for pair in PAIRS if pair.target == measured.resource), None)
    if pair is None or carrier is None or again is None or carrier.stamps() is None or measured.shape is None:
        return
    if carrier.expanded.get(pair.relation, []) is None:  # it is refused
        return
    first, settings = measured.pages[0], carrier.settings
    since = format_since(first.page.asked_at - _BEFORE)
    expand = (*settings.expand, *(() if pair.relation in settings.expand else (pair.relation,)))
    request = list_request(carrier.resource, query=settings.query, expand=expand)
    reading = await _read(carrier, asker, replace(request, params=(*request.params, ("updated_since", since))))
    if reading.page.next_cursor is not None:  # what is on the other pages is not known
        return
    shape = measured.shape
    stamp = None if shape.updated_at is None else pointer.parse(shape.updated_at)

    def is_changed(one: JSON, other: JSON) -> bool:
        return bool(one != other if stamp is None else pointer.resolve(one, stamp) != pointer.resolve(other, stamp))

    def key(record: JSON) -> str | None:
        return next(iter(measured.keys([record])), None)

    measured.signal = find_signal(
        pair,
        (_by_key(measured, first), _by_key(measured, again)),
        reading.records,
        (first.page.asked_at, again.page.answered_at),
        is_changed=is_changed,
        key=key,
    )


def _by_key(measured: Measured, reading: Reading) -> dict[str, JSON]:
    return {key: record for record in reading.records for key in measured.keys([record])}


async def read_conditional(measured: Measured, asker: Asker) -> None:
    """Ask for the first page with its own ``ETag``, where it has one."""
    first = measured.pages[0]
    if (tag := first.response.headers.get("etag")) is not None:
        response = await asker.ask(replace(first.request, etag=tag))
        measured.conditional = response.status


# All of them ---------------------------------------------------------------------------------------------------------

MEASUREMENTS: Final[dict[str, Callable[[Measured, Asker], Awaitable[None]]]] = {
    "first page": read_first,
    "second page": read_next,
    "unknown shipment": read_unknown,
    "updated_since": read_bound,
    "updated_since ahead": read_future,
    "reading again": read_first_again,
    "same cursor": read_same_cursor,
    "default status": read_by_default,
    "precision of updated_since": read_finer,
    "expand": read_expanded,
    "detail": read_detail,
    "signal": read_signal,
    "ETag": read_conditional,
    "third page": read_next,
}
"""In the order in which they are worth a request, for all feeds of a source the first, then the second, and so on."""


async def measure(feeds: Sequence[Measured], asker: Asker, *, apart: timedelta) -> None:
    """Fill in the measurements of a source's feeds as far as the requests go; ``apart`` is between two readings."""
    again_at = 0.0
    for measured in feeds:
        measured.carrier = next((each for each in feeds if each.resource == SIGNALS.get(measured.resource)), None)
    for name, measurement in MEASUREMENTS.items():
        if measurement is read_first_again and not asker.stopped:
            await anyio.sleep(max(0, again_at - anyio.current_time()))
        for measured in feeds:
            if measured.problem:
                continue
            try:
                await measurement(measured, asker)
            except NoMore as reason:
                measured.unmeasured[name] = str(reason)
                if measurement is read_first:
                    measured.problem = "not requested: the probe stopped earlier"
            except DockbellError as error:
                measured.unmeasured[name] = str(error)
        if measurement is read_first:
            again_at = anyio.current_time() + apart.total_seconds()
