"""A model of the API on a virtual clock: it does what real deployments do to a poller, and remembers all of it.

Every version that a record ever had is kept with the time from which it was visible and the time from which it was
not, so that an oracle can say what any reader could have seen, and what it must have seen.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from dockbell.core.model import ClockSource, Page, Urgency
from dockbell.errors import CursorExpired
from dockbell.ports import BetweenTries

Content: TypeAlias = dict[str, Any]

NOON: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)
TICK: Final = timedelta(microseconds=1)
ZERO: Final = timedelta(0)
SECOND: Final = timedelta(seconds=1)
TOLERATED: Final = timedelta(minutes=2)
"""A timestamp further ahead of the service's time than this is a mistake, no other clock."""
PRECISIONS: Final = {"s": SECOND, "ms": timedelta(milliseconds=1), "us": TICK}


@dataclass
class VirtualClock:
    """The service's time, which only the test moves, and ours beside it; called, it tells ours."""

    service: datetime = NOON
    ahead: timedelta = ZERO
    """How far our clock is ahead of the service's."""

    def __call__(self) -> datetime:
        return self.service + self.ahead

    def steady(self) -> timedelta:
        """Return the time that has passed, whatever our clock was set to."""
        return self.service - NOON

    def pass_(self, span: timedelta) -> None:
        self.service += span


@dataclass(frozen=True)
class Deployment:
    """What a deployment of the API makes of everything that its description leaves open.

    Attributes:
        resource: The collection that is modelled.
        stamped: Records carry ``updated_at``.
        precision: To which it is cut.
        stamps_behind: How far the clock that stamps records is behind the one that ``Date`` shows.
        composite: The identity is ``sku`` and ``warehouse_id``, there is no ``id``.
        page_most: The most records on a page, whatever ``limit`` asks.
        order: Of a listing; ``shuffled`` is another one for each listing.
        cursors: ``offset``: pages drift; ``keyset``: each page begins after the last record of the one before;
            ``frozen``: the listing keeps the keys that it began with.
        dated: Answers carry ``Date``.
        lag: How far the lagging replica is behind, zero for none.
        scrambled: Members come in another order, and whole numbers as decimals, every second time.
    """

    resource: str = "shipments"
    stamped: bool = True
    precision: Literal["s", "ms", "us"] = "us"
    stamps_behind: timedelta = ZERO
    composite: bool = False
    page_most: int = 3
    order: Literal["updated", "updated_desc", "created", "key", "shuffled"] = "updated"
    cursors: Literal["offset", "keyset", "frozen"] = "keyset"
    dated: bool = True
    lag: timedelta = ZERO
    scrambled: bool = False


@dataclass(eq=False)
class Version:
    """One state of one record.

    Attributes:
        content: The record without its timestamp; None: it is not there.
        stamp: Its ``updated_at``, which the API compares also where records do not show it.
        shown_at: The service's time from which it is visible.
        hidden_at: The service's time from which the next version is; None while it is the latest.
        silent: Its content moved, its timestamp did not.
        backdated: Its timestamp is older than that of the version before, which is no date of the future.
    """

    key: str
    content: Content | None
    stamp: datetime
    shown_at: datetime
    hidden_at: datetime | None = None
    silent: bool = False
    backdated: bool = False

    def visible(self, at: datetime) -> bool:
        """Return whether the API shows it at a time."""
        return self.shown_at <= at and (self.hidden_at is None or at < self.hidden_at)

    def overlaps(self, start: datetime, end: datetime) -> bool:
        """Return whether it is visible at any time of a span."""
        return self.shown_at <= end and (self.hidden_at is None or start < self.hidden_at)


@dataclass(eq=False)
class Listing:
    """One walk through a list, from the request without a cursor to the last page.

    Attributes:
        number: Names it in its cursors.
        since: Its ``updated_since``.
        query: What its records must be like.
        began_at: The service's time of the first answer, less the replica's lag: what was true then is in it.
        ended_at: The service's time of the last answer so far.
        shown: Keys that it showed.
        finished: It came to its end.
        is_search: It looks for where the records' clock stands, before the first pass.
        is_cut: Its run died, so that not all of its answers need be stored.
        dropped: Versions that were visible and dated before ``since`` when it began.
        keys: The keys that it began with, in their order.
    """

    number: int
    urgency: Urgency
    since: datetime | None
    query: Content
    began_at: datetime
    ended_at: datetime
    dropped: list[Version]
    keys: list[str]
    shown: set[str] = field(default_factory=set)
    is_search: bool = False
    is_cut: bool = False
    finished: bool = False


@dataclass(frozen=True)
class Step:
    """What happens at one request.

    Attributes:
        before: Done when the request reaches the service, before it is answered.
        error: Raised instead of an answer.
        stale: Answered by the lagging replica.
        trip: How long the request takes, there and back.
    """

    before: Callable[[], object] = lambda: None
    error: Exception | None = None
    stale: bool = False
    trip: timedelta = timedelta(milliseconds=20)


@dataclass
class ModelApi:
    """One resource of one account; a :class:`dockbell.ports.Source`."""

    clock: VirtualClock
    deployment: Deployment = field(default_factory=Deployment)
    name: str = "main"
    history: dict[str, list[Version]] = field(default_factory=dict)
    listings: list[Listing] = field(default_factory=list)
    script: deque[Step] = field(default_factory=deque)
    """What happens at the next requests; when it is empty, requests are answered and nothing happens."""
    asked_at: list[datetime] = field(default_factory=list)
    """The service's time of every request."""
    counter: int = 0
    """Numbers the contents: no two are the same but on purpose."""
    _ends: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # where keyset cursors stand

    # What becomes of records ------------------------------------------------------------------------------------------

    def put(
        self,
        key: str,
        *,
        late: timedelta = ZERO,
        silent: bool = False,
        stamp: datetime | None = None,
        content: Content | None = None,
    ) -> Version:
        """Create or change a record.

        Args:
            key: Which.
            late: How long after its timestamp the version becomes visible.
            silent: Leave the timestamp as it is.
            stamp: A timestamp of its own.
            content: What it comes to; something new when left out.
        """
        self.counter += 1
        last = self.latest(key)
        if silent and last is not None:
            stamp = last.stamp
        return self._add(key, content or {"n": self.counter, "tags": ["a", "b"]}, stamp or self._stamp(), late, silent)

    def revert(self, key: str, *, late: timedelta = ZERO) -> Version:
        """Give a record the content that it had before its last change."""
        contents = [version.content for version in self.history[key] if version.content is not None]
        return self._add(key, contents[-2 if len(contents) > 1 else -1], self._stamp(), late)

    def remove(self, key: str, *, late: timedelta = ZERO) -> Version:
        """Delete a record."""
        return self._add(key, None, self._stamp(), late)

    def _stamp(self) -> datetime:
        grain = PRECISIONS[self.deployment.precision]
        moment = self.clock.service - self.deployment.stamps_behind
        return NOON + (moment - NOON) // grain * grain

    def _add(
        self, key: str, content: Content | None, stamp: datetime, late: timedelta, silent: bool = False
    ) -> Version:
        versions = self.history.setdefault(key, [])
        last = versions[-1] if versions else None
        shown_at = self.clock.service + late
        if last is not None:
            shown_at = max(shown_at, last.shown_at + TICK)  # versions become visible in their order
            last.hidden_at = shown_at
        backdated = last is not None and stamp < last.stamp <= self.clock.service + TOLERATED
        version = Version(key, content, stamp, shown_at, silent=silent, backdated=backdated)
        versions.append(version)
        return version

    # What there is to see ---------------------------------------------------------------------------------------------

    def latest(self, key: str) -> Version | None:
        """Return the last version of a record, visible or not yet."""
        versions = self.history.get(key)
        return versions[-1] if versions else None

    def at(self, key: str, moment: datetime) -> Version | None:
        """Return the version of a record that was visible at a time; None when none was, or it was deleted."""
        for version in reversed(self.history.get(key, [])):
            if version.visible(moment):
                return version if version.content is not None else None
        return None

    def view(self, moment: datetime) -> dict[str, Version]:
        """Return what was visible at a time."""
        found = ((key, self.at(key, moment)) for key in self.history)
        return {key: version for key, version in found if version is not None}

    @property
    def settled_at(self) -> datetime:
        """The service's time at which every version is visible on every replica."""
        return max((versions[-1].shown_at for versions in self.history.values()), default=NOON) + self.deployment.lag

    def write(self, version: Version, *, scrambled: bool = False, expand: tuple[str, ...] = ()) -> bytes:
        """Return a version as the API sends it."""
        assert version.content is not None
        record = self.identity(version.key) | version.content | {name: [{"of": version.key}] for name in expand}
        if self.deployment.stamped:
            record["updated_at"] = _format(version.stamp, self.deployment.precision)
        if scrambled:
            record = dict(reversed(record.items()))
        text = json.dumps(record)
        number = f'"n": {version.content.get("n")}'
        return (text.replace(number, f"{number}.0") if scrambled else text).encode()

    def identity(self, key: str) -> Content:
        """Return the members that identify a record."""
        return {"sku": key, "warehouse_id": f"w{len(key) % 2}"} if self.deployment.composite else {"id": key}

    # Requests ---------------------------------------------------------------------------------------------------------

    async def read_page(
        self,
        resource: str,
        *,
        cursor: str | None = None,
        updated_since: datetime | None = None,
        limit: int = 200,
        query: Mapping[str, str | int | bool] | None = None,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.POLL,
        between_tries: BetweenTries = nullcontext,
        patient: bool = True,  # it never refuses
    ) -> Page:
        """Answer one page."""
        step = self.script.popleft() if self.script else Step()
        sent_at = self.clock()
        self.clock.pass_(step.trip / 2)
        step.before()
        here = self.clock.service
        self.asked_at.append(here)
        if step.error is not None and (cursor is not None or not isinstance(step.error, CursorExpired)):
            self.clock.pass_(step.trip / 2)
            raise step.error
        seen_at = here - (self.deployment.lag if step.stale else ZERO)
        listing, start = self._open(cursor, urgency, updated_since, seen_at, dict(query or {}))
        found, following = self._page(listing, start, seen_at, min(limit, self.deployment.page_most))
        listing.shown |= {version.key for version in found}
        listing.ended_at = here
        listing.finished = following is None
        scrambled = self.deployment.scrambled and len(self.asked_at) % 2 == 0
        records = tuple(self.write(version, scrambled=scrambled, expand=expand) for version in found)
        self.clock.pass_(step.trip / 2)
        date = here.replace(microsecond=0)
        dated = self.deployment.dated
        return Page(
            records=records,
            next_cursor=following,
            envelope=resource,
            asked_at=date - step.trip if dated else sent_at,
            clock=ClockSource.DATE if dated else ClockSource.LOCAL,
            answered_at=date + SECOND if dated else self.clock(),
            received_at=self.clock(),
        )

    async def read_shipment(
        self, shipment_id: str, *, expand: tuple[str, ...] = (), urgency: Urgency = Urgency.DETAIL, patient: bool = True
    ) -> bytes | None:
        """Answer one record; None when it is not there."""
        step = self.script.popleft() if self.script else Step()
        self.clock.pass_(step.trip / 2)
        step.before()
        self.asked_at.append(self.clock.service)
        seen_at = self.clock.service - (self.deployment.lag if step.stale else ZERO)
        self.clock.pass_(step.trip / 2)
        if step.error is not None and not isinstance(step.error, CursorExpired):
            raise step.error
        version = self.at(shipment_id, seen_at)
        return None if version is None else self.write(version, expand=expand)

    async def aclose(self) -> None:
        """Nothing is open."""

    def _open(
        self, cursor: str | None, urgency: Urgency, since: datetime | None, seen_at: datetime, query: Content
    ) -> tuple[Listing, str]:
        if cursor is not None:
            number, _, start = cursor.partition("/")
            return self.listings[int(number)], start
        view = self._matching(since, seen_at, query)
        dropped = [each for each in self.view(seen_at).values() if since is not None and each.stamp < since]
        began_at = self.clock.service - self.deployment.lag
        listing = Listing(
            len(self.listings), urgency, since, query, began_at, began_at, dropped, [version.key for version in view]
        )
        listing.is_search = urgency is Urgency.PASS and since is not None
        if self.deployment.order == "shuffled":
            turn = listing.number % max(len(listing.keys), 1)
            listing.keys = [*listing.keys[turn:], *listing.keys[:turn]]
        self.listings.append(listing)
        return listing, ""

    def _matching(self, since: datetime | None, at: datetime, query: Content) -> list[Version]:
        found = [version for version in self.view(at).values() if since is None or version.stamp >= since]
        if query:
            found = [
                version
                for version in found
                if all((version.content or {}).get(name) == wanted for name, wanted in query.items())
            ]
        return sorted(found, key=self._place)

    def _place(self, version: Version) -> tuple[Any, ...]:
        """Return where a version stands in a listing."""
        order = self.deployment.order
        if order == "updated":
            return version.stamp, version.key
        if order == "updated_desc":
            return -(version.stamp - NOON), version.key
        if order == "created":
            return (list(self.history).index(version.key),)
        return (version.key,)

    def _page(self, listing: Listing, start: str, at: datetime, most: int) -> tuple[list[Version], str | None]:
        """Return one page of a listing and the cursor of the next."""
        cursors = self.deployment.cursors
        if cursors == "frozen":
            first = int(start or 0)
            keys = listing.keys[first : first + most]
            found = [version for key in keys if (version := self.at(key, at)) is not None]
            following = str(first + most) if first + most < len(listing.keys) else None
        elif cursors == "offset":
            first = int(start or 0)
            view = self._matching(listing.since, at, listing.query)
            found = view[first : first + most]
            following = str(first + most) if first + most < len(view) else None
        else:
            view = self._matching(listing.since, at, listing.query)
            view = [version for version in view if not start or self._place(version) > self._ends[start]]
            found = view[:most]
            following = json.dumps(self._place(found[-1]), default=str) if len(view) > most else None
            if following is not None:
                self._ends[following] = self._place(found[-1])
        return found, None if following is None else f"{listing.number}/{following}"

    # What the oracle asks ---------------------------------------------------------------------------------------------

    def slipped(self, listing: Listing) -> set[str]:
        """Return the keys that were there all the time that a finished listing took, and that it did not show."""
        return {key for key in self.history if key not in listing.shown and self.was_there(key, listing)}

    def was_there(self, key: str, listing: Listing) -> bool:
        """Return whether a record was there all the time that a listing took, with a timestamp that it asked for."""
        during = [each for each in self.history[key] if each.overlaps(listing.began_at, listing.ended_at)]
        since = listing.since
        return (
            bool(during)
            and during[0].shown_at <= listing.began_at
            and all(each.content is not None and (since is None or each.stamp >= since) for each in during)
        )


def _plain(content: Content) -> Content:
    """Return the members that a query can name."""
    return {name: value for name, value in content.items() if not isinstance(value, list)}


def _format(moment: datetime, precision: str) -> str:
    digits = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[precision]
    return moment.isoformat(timespec=digits).removesuffix("+00:00") + "Z"
