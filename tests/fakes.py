"""Stand-ins for what tests must hold in their hands: the clock, a source and a sink."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec.structs import replace

from dockbell.core.model import DELIVERED, ClockSource, Delivery, Outcome, Page, Urgency
from dockbell.core.moment import format_moment, parse_moment
from dockbell.errors import CursorExpired, PageUnreadable, RequestRefused
from dockbell.ports import BetweenTries, RetainedState
from dockbell.telemetry import Fact, Telemetry

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that stands still until it is told."""

    time: datetime = NOON
    elapsed: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return self.time

    def pass_(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.elapsed += timedelta(seconds=seconds)

    def step(self, seconds: float) -> None:
        """Be set to another time; none passes."""
        self.time += timedelta(seconds=seconds)

    def steady(self) -> timedelta:
        """Return the time that has passed, whatever the clock was set to."""
        return self.elapsed


@dataclass
class FakeSource:
    """A listing with offset cursors, whose pages shift when records move: the unkind end of what services do."""

    clock: Clock
    page_size: int = 3
    stamped: bool = True
    offset: timedelta = timedelta(0)
    """What the records' clock is off from the service's."""
    ahead: timedelta = timedelta(0)
    """What the service's clock is off from ours."""
    reach: timedelta | None = None
    """The age beyond which ``updated_since`` is refused."""
    name: str = "main"
    id_field: str = "id"
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str | None, datetime | None, Urgency]] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    sought: list[datetime] = field(default_factory=list)
    """The ``updated_since`` of the requests before the first pass, which count among no others."""
    before_search: Callable[[], None] = lambda: None
    """Called before each answer to one of those; may raise, or change the records."""
    asked_alone: list[str] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    """Records that spoil every page that they share with others."""
    spoilt: Callable[[int, int], bool] = lambda _, __: False
    """Whether a page cannot be read, by the place of its first record in the list and the limit."""
    is_numbered: bool = False
    """Cursors are the numbers of pages: with another limit they lead somewhere else."""
    before_page: Callable[[int], None] = lambda _: None
    """Called with the number of requests so far, before each answer; may raise, or change the records."""
    before_alone: Callable[[str], None] = lambda _: None
    """Called before each answer about one shipment; same."""

    def put(self, key: str, **fields: Any) -> None:
        """Create or change a record; it moves to the end of the list."""
        record = self.records.pop(key, {self.id_field: key}) | fields
        if self.stamped:
            record["updated_at"] = format_moment(self.clock() + self.offset)
        self.records[key] = record

    async def read_page(
        self,
        resource: str,
        *,
        cursor: str | None = None,
        updated_since: datetime | None = None,
        limit: int | None = 200,
        query: Mapping[str, str | int | bool] | None = None,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.POLL,
        between_tries: BetweenTries = nullcontext,
        patient: bool = True,  # it never refuses
    ) -> Page:
        limit = self.page_size if limit is None else limit
        if updated_since is not None and urgency is Urgency.PASS:  # looks for where the records' clock stands
            self.sought.append(updated_since)
            self.before_search()
        else:
            self.asked.append((cursor, updated_since, urgency))
            self.limits.append(limit)
            self.before_page(len(self.asked))
        if updated_since is not None and self.reach and updated_since < self.clock() + self.ahead - self.reach:
            raise RequestRefused("GET /v1/packages: HTTP 400, updated_since too old")
        found = [
            record
            for record in self.records.values()
            if (updated_since is None or (parse_moment(record.get("updated_at")) or NOON) >= updated_since)
            and all(record.get(name) == value for name, value in (query or {}).items())
        ]
        size = min(limit, self.page_size)
        start = int(cursor or 0) * (size if self.is_numbered else 1)
        after = start + size
        page = [record | {name: [record["id"]] for name in expand} for record in found[start:after]]
        if len(page) > 1 and any(record.get("id") in self.unreadable for record in page):
            raise PageUnreadable("GET /v1/packages: not JSON")
        if self.spoilt(start, limit):
            raise PageUnreadable("GET /v1/packages: too large")
        records = tuple(json.dumps(record).encode() for record in page)
        following = str(after // size if self.is_numbered else after) if after < len(found) else None
        return Page(
            records=records,
            next_cursor=following,
            envelope=resource,
            asked_at=self.clock() + self.ahead,
            clock=ClockSource.DATE,
            answered_at=self.clock() + self.ahead,
            received_at=self.clock(),
        )

    async def read_shipment(
        self,
        shipment_id: str,
        *,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.DETAIL,
        patient: bool = True,
    ) -> bytes | None:
        self.asked_alone.append(shipment_id)
        self.before_alone(shipment_id)
        record = self.records.get(shipment_id)
        return None if record is None else json.dumps(record).encode()

    async def aclose(self) -> None:
        pass


@dataclass
class EmbeddingSource(FakeSource):
    """A listing that embeds the records of another one where that is asked for."""

    embed: Callable[[dict[str, Any]], object] = lambda _: None
    """Called with each record that is to be shown so; adds what is embedded."""
    asides: list[tuple[str | None, datetime | None, int | None]] = field(default_factory=list)
    """What was asked for once only: the cursor, ``updated_since`` and the limit."""
    before_aside: Callable[[], Awaitable[object]] | None = None
    """Awaited before each answer to one of those; may raise."""
    alter: Callable[[Page], Page] = lambda page: page
    """Called with each answer to one of those."""

    async def read_page(self, resource: str, **request: Any) -> Page:
        is_aside = not request.get("patient", True)
        if is_aside:
            self.asides.append((request.get("cursor"), request.get("updated_since"), request.get("limit")))
            if self.before_aside is not None:
                await self.before_aside()
        expand = request.pop("expand", ())
        page = await super().read_page(resource, **request)
        if not expand:
            return page
        records = [json.loads(raw) for raw in page.records]
        for record in records:
            self.embed(record)
        page = replace(page, records=tuple(json.dumps(record).encode() for record in records))
        return self.alter(page) if is_aside else page


def expire_cursors(request: int) -> None:
    """Forget every cursor at the second request; for :attr:`FakeSource.before_page`."""
    if request == 2:
        raise CursorExpired("cursor: the API answered HTTP 410")


@dataclass
class FakeSink:
    """Takes what it is told to take, one delivery after the other, and remembers all."""

    name: str = "screen"
    window: int = 4
    keeps_state: bool = False
    answer: Callable[[Delivery], Outcome] = lambda _: DELIVERED
    got: list[Delivery] = field(default_factory=list)
    retained_state: RetainedState | None = None

    def attach(self, retained_state: RetainedState) -> None:
        self.retained_state = retained_state

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        async for delivery in deliveries:
            self.got.append(delivery)
            settle(delivery, self.answer(delivery))

    async def probe(self) -> str:
        return "here"

    @property
    def sequences(self) -> list[int]:
        """The sequences that were attempted, in their order."""
        return [delivery.event.sequence for delivery in self.got]


class Ear:
    """Hears every fact."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.telemetry = Telemetry(self.facts.append)

    def texts(self) -> list[str]:
        """Return the facts as the log has them."""
        return [str(fact) for fact in self.facts]
