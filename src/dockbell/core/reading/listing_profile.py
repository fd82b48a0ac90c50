"""The habits of a feed's listing: what its pages have in common, learned from them and checked on each.

How records are named, dated, written and ordered is nowhere promised, so it is learned: of a page of ten records at
least, and only where the page speaks with one voice. A later page that speaks otherwise is a *drift*: it is told once,
and the new habit takes the place of the old. What keeps changing is told a few times, and then called varying.

Nothing relies on a habit but the start of a poll's window, which is rounded down to the precision of the timestamps.

A page says nothing new nearly always, and this runs for every page: so the first and the last record are looked into,
all others only by what their judgement knows anyway, their keys and dates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from math import gcd
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from dockbell.core import pointer
from dockbell.core.model import JSON, ClockSource, Page
from dockbell.core.moment import EPOCH, parse_moment, to_micros
from dockbell.core.reading.response import clean

RECORDS_LEAST: Final = 10
"""So many records of a page, or different values of them, make a habit; fewer may agree by chance."""
TURNS_MOST: Final = 3
"""A habit that has turned more often than this varies."""
STEADY_RUNS: Final = 10
"""So many complete runs of several pages without a repeated record make steady cursors."""
OFFSET_STEP: Final = timedelta(seconds=60)
"""Our clock and the service's may drift apart by this much, and an answer may take this long, without a word."""

_PLAUSIBLE_MICROS: Final = 86_400_000_000
"""A record dated a day or more ahead is planned; its date says nothing of a clock."""
_RECENT_MICROS: Final = 3_600_000_000
_LONGEST: Final = 80
_STRIDE: Final = 16
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_MIXED: Final = "mixed"
_NONE: Final = "none"
_OFFSET: Final = re.compile(r"[+-]\d{2}(?::?\d{2})?\Z")

_UNITS: Final = {
    "days": timedelta(days=1),
    "minutes": timedelta(minutes=1),
    "seconds": _SECOND,
    "milliseconds": timedelta(milliseconds=1),
    "microseconds": _MICROSECOND,
}
_MICROS: Final = {name: unit // _MICROSECOND for name, unit in _UNITS.items()}
_CLOCKS: Final[dict[str, str]] = {
    ClockSource.DATE: "Date",
    ClockSource.RESET: "x-ratelimit-reset",
    ClockSource.LOCAL: "our own clock",
}
_FORMS: Final = {
    "Z": "with Z",
    "offset": "with an offset",
    "naive": "without a zone",
    "seconds": "as seconds since 1970",
    "milliseconds": "as milliseconds since 1970",
    "microseconds": "as microseconds since 1970",
    _MIXED: "in several ways",
}
_ORDERS: Final = {
    "updated": "updated_at, ascending",
    "-updated": "updated_at, descending",
    "key": "the key, ascending",
    "-key": "the key, descending",
    "number": "the key's number, ascending",
    "-number": "the key's number, descending",
    "created": "created_at, ascending",
    "-created": "created_at, descending",
}


class CursorKind(StrEnum):
    """What runs of several pages have shown of the cursors."""

    UNKNOWN = "unknown"
    DRIFTING = "drifting"  # a run showed records twice: its pages shifted while it read them
    STEADY = "steady"  # many runs did not


class Beside(StrEnum):
    """What an API takes beside a cursor."""

    FILTERS = "filters"  # and the limit
    LIMIT = "limit"
    NOTHING = "nothing"


class Habit(NamedTuple):
    """One thing that pages have in common.

    Attributes:
        value: What it is; empty while unknown.
        turns: How often it has become another.
    """

    value: str = ""
    turns: int = 0

    @property
    def varies(self) -> bool:
        """Whether it is not one thing, so that no page can speak against it."""
        return self.turns > TURNS_MOST or self.value == _MIXED


class Offset(NamedTuple):
    """How far the service's clock is ahead of ours, in whole seconds; ``turns`` as in :class:`Habit`."""

    seconds: int
    turns: int = 0


# What a page shows ---------------------------------------------------------------------------------------------------


class Sampler:
    """Looks into raw records of one feed for what their judgement does not know; built once per shape."""

    def __init__(self, *, key: Sequence[str], updated_at: str | None, created_at: str | None = None) -> None:
        """Set where identity and times stand, as JSON pointers."""
        self._key = [pointer.parse(part) for part in key]
        self._updated_at = None if updated_at is None else pointer.parse(updated_at)
        self._created_at = None if created_at is None else pointer.parse(created_at)
        places = [*self._key, self._updated_at, self._created_at]
        make_dict: Any = TypedDict  # its members are known at run time only
        members = {tokens[0]: Any for tokens in places if tokens}
        self._head: msgspec.json.Decoder[dict[str, JSON]] = msgspec.json.Decoder(
            make_dict("head", members, total=False)
        )

    @property
    def is_dated(self) -> bool:
        """Whether records have a timestamp."""
        return self._updated_at is not None

    @property
    def knows_created(self) -> bool:
        """Whether records have a creation time."""
        return self._created_at is not None

    def head(self, raw: bytes) -> JSON:
        """Return the members of a record that matter here; None where it cannot be read."""
        try:
            return self._head.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None

    def kind(self, head: JSON) -> str:
        """Return what the parts of a key are, ``text`` or ``integer``; empty where one is neither."""
        kinds = []
        for tokens in self._key:
            value = pointer.resolve(head, tokens)
            if type(value) is str:
                kinds.append("text")
            elif type(value) is int:
                kinds.append("integer")
            else:
                return ""
        return ", ".join(kinds)[:_LONGEST]

    def form(self, head: JSON, expected: str) -> str:
        """Return how a timestamp is written; empty where there is none.

        Args:
            head: Of the record.
            expected: How it was written before: what looks like it is not read any further.
        """
        if self._updated_at is None:
            return ""
        value = pointer.resolve(head, self._updated_at)
        form = ""
        if type(value) is str:
            form = "Z" if value.endswith(("Z", "z")) else "offset" if _OFFSET.search(value, 10) else "naive"
            if form == expected:
                return form
        moment = parse_moment(value)
        if moment is None:
            return ""
        if form:
            return form
        elapsed = (moment - EPOCH) // _MICROSECOND
        return next(name for name, micros in _MICROS.items() if value * micros == elapsed)

    def created(self, records: Sequence[bytes]) -> list[int]:
        """Return the creation times of records, in µs since 1970, without those that have none."""
        if self._created_at is None:
            return []
        return self._times(records, self._created_at)

    def updated(self, records: Sequence[bytes]) -> list[int]:
        """Return the timestamps of records, in µs since 1970, without those that have none."""
        return [] if self._updated_at is None else self._times(records, self._updated_at)

    def _times(self, records: Sequence[bytes], tokens: pointer.Tokens) -> list[int]:
        times = [parse_moment(pointer.resolve(self.head(raw), tokens)) for raw in records]
        return [to_micros(time) for time in times if time is not None]


class Head(NamedTuple):
    """How a page begins: the key string and the date of its first record; None where it has none."""

    key: str | None
    date: int | None


_NO_HEAD: Final = Head(None, None)


class Sighting(NamedTuple):
    """What the judgement of a page knows of its records, in their order.

    Attributes:
        sampler: Looks into the records.
        keys: Their key strings; those of bad records may be left out.
        dates: Their own timestamps as this page shows them, in µs since 1970; None for one that has none.
        polled: The page is of a poll, which may be ordered otherwise than the whole list.
        before: How the page before it in the same run began; None for the first, or where that is not known.
    """

    sampler: Sampler
    keys: Sequence[str]
    dates: Sequence[int | None]
    polled: bool = False
    before: Head | None = None

    @property
    def head(self) -> Head:
        """How the page begins, for the sighting of the next page of the run."""
        return Head(next(iter(self.keys), None), next((date for date in self.dates if date is not None), None))


class _View(NamedTuple):
    """One page, as all habits look at it.

    Attributes:
        stamps: The dates that there are.
        newest: The latest of them.
        ends: The first and the last record, in part.
        teaches: Whether it is long enough to learn from.
    """

    page: Page
    sighting: Sighting
    stamps: list[int]
    newest: int
    ends: tuple[JSON, JSON]
    teaches: bool


# The habits ----------------------------------------------------------------------------------------------------------


class ListingProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was learned of one feed's listing.

    Attributes:
        envelope: The field that holds the records.
        key: What the parts of the key are, ``text`` or ``integer``.
        form: How timestamps are written: ``Z``, ``offset``, ``naive``, or as ``seconds``, ``milliseconds`` or
            ``microseconds`` since 1970.
        dated: Whether ``all`` records have a timestamp, or ``none``, or some (``mixed``).
        unit: The coarsest unit in which all timestamps are whole; those of the last hour alone, once there were enough.
        fresh: There were enough of the last hour.
        order: The orders that every page of the whole list has kept so far, the likeliest first, or ``none``.
        poll_order: The same of the pages of polls.
        clock: What the service's time is taken from.
        offset: How far the service's clock is ahead of ours, where ``Date`` tells it.
        skew: The records' clock is ahead of the service's by at least this many seconds; below zero, behind by that
            many at the most. Kept within a factor of two, so that it is not stored anew with every poll.
        clean_runs: How many complete runs of several pages showed no record twice, at most ``STEADY_RUNS``.
        repeated: How many records the first run showed twice that did.
        page_most: The most records on a page that had a cursor; 0 while none had as many as make a habit.
        reach: The API refuses an ``updated_since`` older than this, in seconds; None where no bound is known.
        beside_cursor: What the API takes beside a cursor; it refuses more.
    """

    envelope: Habit = Habit()
    key: Habit = Habit()
    form: Habit = Habit()
    dated: Habit = Habit()
    unit: Habit = Habit()
    fresh: bool = False
    order: Habit = Habit()
    poll_order: Habit = Habit()
    clock: Habit = Habit()
    offset: Offset | None = None
    skew: int | None = None
    clean_runs: int = 0
    repeated: int = 0
    page_most: int = 0
    reach: float | None = None
    beside_cursor: Beside = Beside.FILTERS

    def to_json(self) -> str:
        """Return it as stored; empty where nothing is known."""
        return "" if self == _UNKNOWN else msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> ListingProfile:
        """Return what was stored; nothing known where another version stored it, for it is soon learned again."""
        try:
            return msgspec.json.decode(text or "{}", type=cls)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return cls()

    @property
    def precision(self) -> timedelta:
        """The unit to which the start of a poll is rounded down: a second, until the timestamps' own is known."""
        return _UNITS.get(self.unit.value, _SECOND)

    @property
    def behind(self) -> timedelta | None:
        """How far the records' clock is behind the service's at the most; None where that is not known."""
        return None if self.skew is None else timedelta(seconds=max(-self.skew, 0))

    @property
    def cursors(self) -> CursorKind:
        """What runs of several pages have shown of the cursors."""
        if self.repeated:
            return CursorKind.DRIFTING
        return CursorKind.STEADY if self.clean_runs >= STEADY_RUNS else CursorKind.UNKNOWN

    # Learning ---------------------------------------------------------------------------------------------------------

    def observe(self, page: Page, sighting: Sighting) -> tuple[ListingProfile, tuple[str, ...]]:
        """Return what is known after a page, and what it shows otherwise than known before, a sentence each.

        Nothing new gives the very same object, so that it need not be stored.
        """
        if not page.records:
            return self, ()
        stamps, head = [date for date in sighting.dates if date is not None], sighting.sampler.head
        view = _View(
            page,
            sighting,
            stamps,
            max(stamps, default=0),
            (head(page.records[0]), head(page.records[-1])),
            len(page.records) >= RECORDS_LEAST,
        )
        drifts: list[str] = []
        unit, fresh = self._observe_unit(view, drifts)
        polled = sighting.polled
        listing_profile = ListingProfile(
            envelope=self._observe_envelope(view, drifts),
            key=self._observe_key(view, drifts),
            form=self._observe_form(view, drifts),
            dated=self._observe_dated(view, drifts),
            unit=unit,
            fresh=fresh,
            order=self.order if polled else _observe_order(self.order, view, drifts),
            poll_order=_observe_order(self.poll_order, view, drifts) if polled else self.poll_order,
            clock=self._observe_clock(view, drifts),
            offset=self._observe_offset(view, drifts),
            skew=self._observe_skew(view),
            clean_runs=self.clean_runs,
            repeated=self.repeated,
            page_most=max(self.page_most, len(page.records)) if view.teaches and page.next_cursor else self.page_most,
            reach=self.reach,
            beside_cursor=self.beside_cursor,
        )
        return (self, ()) if listing_profile == self else (listing_profile, tuple(drifts))

    def end_run(self, *, pages: int, repeated: int, complete: bool) -> tuple[ListingProfile, tuple[str, ...]]:
        """Return what is known after a run, and what it showed otherwise; the very same object for nothing new.

        Args:
            pages: How many it read.
            repeated: How many records it showed a second time.
            complete: It was read to its end.
        """
        if self.repeated or pages <= 1:
            return self, ()
        if repeated > 0:
            steady = self.cursors is CursorKind.STEADY
            drift = f"runs of several pages showed no record twice, and one showed {repeated:,} twice now"
            return msgspec.structs.replace(self, repeated=repeated), (drift,) if steady else ()
        if not complete or self.clean_runs >= STEADY_RUNS:
            return self, ()
        return msgspec.structs.replace(self, clean_runs=self.clean_runs + 1), ()

    def learn_reach(self, reach: timedelta) -> tuple[ListingProfile, tuple[str, ...]]:
        """Return what is known after the API refused a start older than this and accepted this, and the news."""
        drift = f"polls may ask for what was modified in the last {_in_words(reach)}, and for nothing older"
        return msgspec.structs.replace(self, reach=reach.total_seconds()), (drift,)

    def turn_beside_cursor(self, beside: Beside) -> tuple[ListingProfile, tuple[str, ...]]:
        """Return what is known when cursors are to be sent beside this from now on."""
        drift = {
            Beside.FILTERS: "the API took a cursor alone for a list without its filters",
            Beside.LIMIT: "the API refuses a cursor beside filters, and shows the same pages for it alone",
            Beside.NOTHING: "the API refuses a cursor beside a limit, and shows the same pages for it alone",
        }[beside]
        return msgspec.structs.replace(self, beside_cursor=beside), (drift,)

    def _observe_envelope(self, view: _View, drifts: list[str]) -> Habit:
        known, name = self.envelope, view.page.envelope
        if name == known.value:
            return known
        name = clean(name)[:_LONGEST]
        return _learn(known, name, drifts, f'the records\' array was "{known.value}" and is now "{name}"')

    def _observe_key(self, view: _View, drifts: list[str]) -> Habit:
        known, kind = self.key, view.sighting.sampler.kind
        seen = _agree(kind(view.ends[0]), kind(view.ends[1]))
        if seen == known.value:
            return known
        return _learn(known, seen, drifts, f"keys were {known.value} and are {seen} now", teaches=view.teaches)

    def _observe_form(self, view: _View, drifts: list[str]) -> Habit:
        known, form = self.form, view.sighting.sampler.form
        seen = _agree(form(view.ends[0], known.value), form(view.ends[1], known.value))
        if seen == known.value:
            return known
        was, now = _FORMS.get(known.value, known.value), _FORMS.get(seen, seen)
        drift = f"timestamps were written {was} and are now written {now}"
        return _learn(known, seen, drifts, drift, teaches=view.teaches)

    def _observe_dated(self, view: _View, drifts: list[str]) -> Habit:
        known, there, count = self.dated, len(view.stamps), len(view.sighting.dates)
        if known.value == _MIXED or not count or not view.sighting.sampler.is_dated:
            return known
        seen = "all" if there == count else _MIXED if there else _NONE
        if not known.value:
            return Habit(seen) if view.teaches else known
        if seen == known.value:
            return known
        if known.value == "all":
            drifts.append(f"every record had a timestamp, and {count - there} of {count} have none now")
        return Habit(_MIXED)

    def _observe_unit(self, view: _View, drifts: list[str]) -> tuple[Habit, bool]:
        """Return the unit of the timestamps.

        What was imported long ago may be written in another unit than what happens now, and polls are about now. So
        before there were enough timestamps of the last hour any will do, and afterwards only those count.
        """
        known, stamps, now = self.unit, view.stamps, to_micros(view.page.answered_at)
        if known.varies or not stamps:
            return known, self.fresh
        since = now - _RECENT_MICROS
        if (self.fresh or view.newest < since) and _unit_of(stamps[::_STRIDE]) == known.value:
            return known, self.fresh  # a few stand for all: a service writes them one way
        recent = [stamp for stamp in stamps if since <= stamp <= now + _PLAUSIBLE_MICROS]
        enough = len(recent) >= RECORDS_LEAST and len(set(recent)) >= RECORDS_LEAST
        unit = _unit_of(recent) if recent else known.value
        if self.fresh:
            return (self._turn_unit(unit, drifts) if enough or _is_finer(unit, known.value) else known), True
        if enough:
            return (known if unit == known.value else Habit(unit)), True
        whole = _unit_of(stamps)
        several = view.teaches and len(set(stamps)) >= RECORDS_LEAST
        learned = (known.value or several) and _is_finer(whole, known.value)
        return (Habit(whole) if learned else known), False

    def _turn_unit(self, unit: str, drifts: list[str]) -> Habit:
        known = self.unit
        turned = _learn(known, unit, drifts, f"timestamps were whole {known.value} and are now whole {unit}")
        # What varies is as coarse as its coarsest, so that a poll never starts after what it is to show.
        return turned._replace(value=known.value) if turned.varies and _is_finer(unit, known.value) else turned

    def _observe_clock(self, view: _View, drifts: list[str]) -> Habit:
        known, seen = self.clock, view.page.clock.value
        if seen == known.value:
            return known
        was, now = _CLOCKS.get(known.value, known.value), _CLOCKS[view.page.clock]
        return _learn(known, seen, drifts, f"the service's time was taken from {was} and is now taken from {now}")

    def _observe_offset(self, view: _View, drifts: list[str]) -> Offset | None:
        page, known = view.page, self.offset
        if page.clock is not ClockSource.DATE or (known is not None and known.turns > TURNS_MOST):
            return known
        ahead = page.answered_at - page.received_at
        if known is not None and abs(ahead // _SECOND - known.seconds) <= OFFSET_STEP // _SECOND:
            return known
        seconds = round((ahead - _SECOND / 2).total_seconds())  # a Date is cut to the second
        if known is None:
            return Offset(seconds)
        drift = f"the service's clock was {_apart(known.seconds)} ours and is {_apart(seconds)} it now"
        turned = Offset(seconds, known.turns + 1)
        drifts.append(drift + _AGAIN if turned.turns > TURNS_MOST else drift)
        return turned

    def _observe_skew(self, view: _View) -> int | None:
        """Return how far the records' clock is ahead at the least, by the newest timestamp that can be meant.

        It is a bound that pages can only raise: a list that shows nothing new says nothing of its clock. So it proves
        no drift.
        """
        known, stamps = self.skew, view.stamps
        if not stamps or not (view.teaches or known is not None):
            return known
        now = to_micros(view.page.answered_at)
        last = now + _PLAUSIBLE_MICROS
        newest = view.newest
        if newest > last:
            newest = max((stamp for stamp in stamps if stamp <= last), default=0)
        skew = max((newest - now) // 1_000_000, -_SKEW_MOST)
        if known is None:
            return skew
        raised = skew > known and (skew * 2 >= known if known < 0 else skew >= known * 2)
        return skew if raised else known

    # Telling ----------------------------------------------------------------------------------------------------------

    def describe(self) -> Sequence[tuple[str, str]]:
        """Return what is known, as names and words for the operator."""
        lines = [
            ("envelope", _words(self.envelope, f'"{self.envelope.value}"')),
            ("key", _words(self.key, self.key.value)),
            ("timestamps", _words(self.form, f"written {_FORMS.get(self.form.value, self.form.value)}")),
            ("dated", _DATED.get(self.dated.value, "")),
            ("precision", _words(self.unit, f"whole {self.unit.value}")),
            ("order", _words(self.order, _describe_order(self.order.value))),
            ("order of polls", _words(self.poll_order, _describe_order(self.poll_order.value))),
            ("service's time", _words(self.clock, f"from {_CLOCKS.get(self.clock.value, '')}")),
            ("service's clock", "" if self.offset is None else f"{_apart(self.offset.seconds)} ours"),
            ("records' clock", "" if self.skew is None else _describe_skew(self.skew)),
            ("cursors", _describe_cursors(self)),
            ("updated_since", "" if self.reach is None else f"at most {_in_words(timedelta(seconds=self.reach))} back"),
            ("filters", _BESIDE[self.beside_cursor]),
        ]
        return [(name, words) for name, words in lines if words]


_UNKNOWN: Final = ListingProfile()
_BESIDE: Final = {
    Beside.FILTERS: "",
    Beside.LIMIT: "sent for the first page only: the API takes a cursor alone",
    Beside.NOTHING: "sent for the first page only, and so is the limit: the API takes a cursor alone",
}
_AGAIN: Final = "; it changes again and again, which is not told any more"
_SKEW_MOST: Final = 10_000 * 86_400
_DATED: Final = {"all": "every record", "none": "no record", _MIXED: "some records"}


def _learn(known: Habit, seen: str, drifts: list[str], drift: str, *, teaches: bool = True) -> Habit:
    """Return a habit after a page that shows ``seen``, the empty string for nothing; the same for nothing new."""
    if not seen or seen == known.value or known.varies:
        return known
    if not known.value:
        return Habit(seen, known.turns) if teaches else known
    turned = Habit(seen, known.turns + 1)
    drifts.append(drift + _AGAIN if turned.turns > TURNS_MOST else drift)
    return turned


def _agree(first: str, last: str) -> str:
    """Return what both ends of a page show; what one shows where the other shows nothing."""
    return first if first == last or not last else last if not first else _MIXED


def _unit_of(stamps: Sequence[int]) -> str:
    common = gcd(*stamps)
    return next(name for name, micros in _MICROS.items() if common % micros == 0)


def _is_finer(unit: str, other: str) -> bool:
    return other not in _MICROS or _MICROS[unit] < _MICROS[other]


# The order of the list -----------------------------------------------------------------------------------------------


def _observe_order(known: Habit, view: _View, drifts: list[str]) -> Habit:
    """Return the orders that all pages have kept.

    Several may hold for long: keys are given in the order of creation, and what was never edited is dated so too. The
    likeliest stands for all; when a page breaks it, those that the page keeps remain. Where none does, it is a drift.
    What is in no order stays so: another look would cost the most and tell the least.
    """
    if known.value == _NONE or known.varies:
        return known
    if not known.value:
        return Habit(_orders_of(view), known.turns) if _tells_order(view) else known
    first, *others = known.value.split()
    if _keeps(first, view, whole=False):
        return known
    remaining = " ".join(order for order in others if _keeps(order, view, whole=True))
    if remaining:
        return Habit(remaining, known.turns)
    subject = "the list of polls" if view.sighting.polled else "the list"
    turned = Habit(_orders_of(view) if _tells_order(view) else "", known.turns + 1)
    drift = f"{subject} was in the order of {_ORDERS.get(first, first)}, and is not any more"
    drifts.append(drift + _AGAIN if turned.varies else drift)
    return turned


def _tells_order(view: _View) -> bool:
    """Return whether a page has so many different keys and times that no order of theirs holds by chance."""
    sampler = view.sighting.sampler
    return (
        len(set(view.sighting.keys)) >= RECORDS_LEAST
        and (not sampler.is_dated or len(set(view.stamps)) >= RECORDS_LEAST)
        and (not sampler.knows_created or len(set(sampler.created(view.page.records))) >= RECORDS_LEAST)
    )


def _orders_of(view: _View) -> str:
    sampler = view.sighting.sampler
    there = (
        {"key", "number"}
        | ({"updated"} if sampler.is_dated else set())
        | ({"created"} if sampler.knows_created else set())
    )
    orders = [order for order in _ORDERS if order.removeprefix("-") in there]
    return " ".join(order for order in orders if _keeps(order, view, whole=True)) or _NONE


def _keeps(order: str, view: _View, *, whole: bool) -> bool:
    """Return whether a page is in an order; ``created`` by its two ends, or else whole.

    It must also begin after the page before it began, not after that page's end: where a list is read by offset, pages
    may shift, and one repeats the end of the other.
    """
    sighting, records = view.sighting, view.page.records
    column, descending = order.removeprefix("-"), order.startswith("-")
    began, begins = (sighting.before, sighting.head) if sighting.before else (_NO_HEAD, _NO_HEAD)
    if column == "created":
        created = sighting.sampler.created(records if whole else (records[0], records[-1]))
        return created == sorted(created, reverse=descending)
    if column == "updated":
        return view.stamps == sorted(view.stamps, reverse=descending) and _follows(began.date, begins.date, descending)
    keys = sorted(sighting.keys, reverse=descending)
    if column == "number":  # a longer number is a greater one
        keys.sort(key=len, reverse=descending)
        return keys == list(sighting.keys) and _follows(_numbered(began.key), _numbered(begins.key), descending)
    return keys == list(sighting.keys) and _follows(began.key, begins.key, descending)


def _follows(began: Any, begins: Any, descending: bool) -> bool:
    if began is None or begins is None:
        return True
    return bool(begins <= began if descending else begins >= began)


def _numbered(key: str | None) -> tuple[int, str] | None:
    return None if key is None else (len(key), key)


# Words ---------------------------------------------------------------------------------------------------------------


def _words(habit: Habit, words: str) -> str:
    if not habit.value:
        return ""
    return f"varies, last {words}" if habit.turns > TURNS_MOST else words


def _describe_order(value: str) -> str:
    first = value.partition(" ")[0]
    return "none" if first == _NONE else _ORDERS.get(first, first)


def _describe_skew(skew: int) -> str:
    if skew > 0:
        return f"at least {skew:,} s ahead of the service's"
    return f"at most {-skew:,} s behind the service's, going by the newest timestamp"


def _describe_cursors(listing_profile: ListingProfile) -> str:
    if listing_profile.cursors is CursorKind.DRIFTING:
        return f"drifting: a run showed {listing_profile.repeated:,} records twice"
    if listing_profile.cursors is CursorKind.STEADY:
        return f"steady: {STEADY_RUNS} runs of several pages showed no record twice"
    return f"unknown: {listing_profile.clean_runs} runs of several pages yet" if listing_profile.clean_runs else ""


def _in_words(span: timedelta) -> str:
    """Return a span as ``6.9 days``, in its largest unit."""
    for name, unit in (("days", timedelta(days=1)), ("hours", timedelta(hours=1)), ("minutes", timedelta(minutes=1))):
        if span >= unit:
            return f"{span / unit:.1f} {name}"
    return f"{span.total_seconds():.0f} seconds"


def _apart(seconds: int) -> str:
    return f"{-seconds:,} s behind" if seconds < 0 else f"{seconds:,} s ahead of"
