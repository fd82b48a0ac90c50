"""What is observed of every page of a listing: a table of named observations.

Each knows where its value stands in the profile, how it learns from a page, which drift it reports where the page
contradicts what is known, and how the operator is told of the value.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dockbell.core.model import ClockSource
from dockbell.core.moment import to_micros
from dockbell.core.reading.page_sample import LONGEST, PageView
from dockbell.core.reading.response import clean
from dockbell.core.reading.traits import (
    MIXED,
    PLAUSIBLE_MICROS,
    TURNS_MOST,
    Trait,
    agree,
    describe_order,
    learn_fresh,
    learn_order,
    learn_unit,
    report_turn,
)

if TYPE_CHECKING:
    from dockbell.core.reading.listing_profile import ListingProfile

OFFSET_STEP: Final = timedelta(seconds=60)
"""Our clock and the service's may drift apart by this much, and an answer may take this long, without a report."""

_SECOND: Final = timedelta(seconds=1)
_SKEW_MOST: Final = 10_000 * 86_400
_CLOCKS: Final[dict[str, str]] = {
    ClockSource.DATE: "Date",
    ClockSource.RESET: "x-ratelimit-reset",
    ClockSource.LOCAL: "the local clock",
}
_FORMS: Final = {
    "Z": "with Z",
    "offset": "with an offset",
    "naive": "without a zone",
    "seconds": "as seconds since 1970",
    "milliseconds": "as milliseconds since 1970",
    "microseconds": "as microseconds since 1970",
    MIXED: "in several ways",
}
_DATED: Final = {"all": "every record", "none": "no record", MIXED: "some records"}


class Offset(NamedTuple):
    """How far the service's clock is ahead of ours, in whole seconds; ``turns`` as in :class:`Trait`."""

    seconds: int
    turns: int = 0


class Observation(NamedTuple):
    """What is observed of a page in one respect."""

    field: str  # the member of the profile that holds what is known
    name: str  # what the operator reads; empty for what is not shown
    learn: Callable[[ListingProfile, PageView], tuple[Any, str]]
    """Returns the value after a page, the known one for nothing new; and the drift to report, or nothing."""
    describe: Callable[[Any], str]  # returns the value in words; empty while it is unknown


def _learn_envelope(known: ListingProfile, view: PageView) -> tuple[Trait, str]:
    trait, name = known.envelope, view.page.envelope
    if name == trait.value:
        return trait, ""
    name = clean(name)[:LONGEST]
    return trait.learn(name, f'the records\' array was "{trait.value}" and is now "{name}"')


def _learn_key(known: ListingProfile, view: PageView) -> tuple[Trait, str]:
    trait, kind = known.key, view.sighting.sampler.key_kind
    seen = agree(kind(view.ends[0]), kind(view.ends[1]))
    return trait.learn(seen, f"keys were {trait.value} and are now {seen}", teaches=view.teaches)


def _learn_form(known: ListingProfile, view: PageView) -> tuple[Trait, str]:
    trait, form = known.form, view.sighting.sampler.time_form
    seen = agree(form(view.ends[0], trait.value), form(view.ends[1], trait.value))
    was, now = _FORMS.get(trait.value, trait.value), _FORMS.get(seen, seen)
    drift = f"timestamps were written {was} and are now written {now}"
    return trait.learn(seen, drift, teaches=view.teaches)


def _learn_dated(known: ListingProfile, view: PageView) -> tuple[Trait, str]:
    trait, there, count = known.dated, len(view.stamps), len(view.sighting.dates)
    if trait.value == MIXED or not count or not view.sighting.sampler.is_dated:
        return trait, ""
    seen = "all" if there == count else MIXED if there else "none"
    if not trait.value:
        return (Trait(seen) if view.teaches else trait), ""
    if seen == trait.value:
        return trait, ""
    drift = f"every record had a timestamp, and now {count - there} of {count} have none"
    return Trait(MIXED), drift if trait.value == "all" else ""


def _learn_page_most(known: ListingProfile, view: PageView) -> tuple[int, str]:
    page = view.page
    has_more = view.teaches and page.next_cursor
    return (max(known.page_most, len(page.records)) if has_more else known.page_most), ""


def _learn_clock(known: ListingProfile, view: PageView) -> tuple[Trait, str]:
    trait, seen = known.clock, view.page.clock
    was = _CLOCKS.get(trait.value, trait.value)
    drift = f"the service's time was taken from {was} and is now taken from {_CLOCKS[seen]}"
    return trait.learn(seen.value, drift)


def _learn_offset(known: ListingProfile, view: PageView) -> tuple[Offset | None, str]:
    page, offset = view.page, known.offset
    if page.clock is not ClockSource.DATE or (offset is not None and offset.turns > TURNS_MOST):
        return offset, ""
    ahead = page.answered_at - page.received_at
    if offset is not None and abs(ahead // _SECOND - offset.seconds) <= OFFSET_STEP // _SECOND:
        return offset, ""
    seconds = round((ahead - _SECOND / 2).total_seconds())  # a Date is cut to the second
    if offset is None:
        return Offset(seconds), ""
    drift = (
        f"the service's clock was {_apart(offset.seconds)} the local clock and is now {_apart(seconds)} the local clock"
    )
    return Offset(seconds, offset.turns + 1), report_turn(drift, offset.turns + 1)


def _learn_skew(known: ListingProfile, view: PageView) -> tuple[int | None, str]:
    """Learn how far the records' clock is ahead at the least, by the newest timestamp that can be meant.

    Pages can only raise this bound: a list that shows nothing new says nothing of its clock. So it reports no drift.
    """
    skew, stamps = known.skew, view.stamps
    if not stamps or (skew is None and not view.teaches):
        return skew, ""
    now, newest = to_micros(view.page.answered_at), view.newest
    last = now + PLAUSIBLE_MICROS
    if newest > last:
        newest = max((stamp for stamp in stamps if stamp <= last), default=0)
    seen = max((newest - now) // 1_000_000, -_SKEW_MOST)
    return (seen if skew is None or _is_raised(skew, seen) else skew), ""


def _is_raised(skew: int, seen: int) -> bool:
    """Return whether a bound is better by a factor of two, so that it is not stored anew with every poll."""
    return seen > skew and (seen * 2 >= skew if skew < 0 else seen >= skew * 2)


def _describe_skew(skew: int | None) -> str:
    if skew is None:
        return ""
    if skew > 0:
        return f"at least {skew:,} s ahead of the service's"
    return f"at most {-skew:,} s behind the service's, going by the newest timestamp"


def _apart(seconds: int) -> str:
    return f"{-seconds:,} s behind" if seconds < 0 else f"{seconds:,} s ahead of"


OBSERVATIONS: Final = (
    Observation("envelope", "envelope", _learn_envelope, lambda known: known.describe(f'"{known.value}"')),
    Observation("key", "key", _learn_key, lambda known: known.describe(known.value)),
    Observation(
        "form",
        "timestamps",
        _learn_form,
        lambda known: known.describe(f"written {_FORMS.get(known.value, known.value)}"),
    ),
    Observation("dated", "dated", _learn_dated, lambda known: _DATED.get(known.value, "")),
    Observation(
        "unit",
        "precision",
        lambda known, view: learn_unit(known.unit, view, fresh=known.fresh),
        lambda known: known.describe(f"whole {known.value}"),
    ),
    Observation("fresh", "", lambda known, view: (learn_fresh(known.fresh, known.unit, view), ""), str),
    Observation(
        "order",
        "order",
        lambda known, view: (known.order, "") if view.sighting.polled else learn_order(known.order, view),
        describe_order,
    ),
    Observation(
        "poll_order",
        "order of polls",
        lambda known, view: learn_order(known.poll_order, view) if view.sighting.polled else (known.poll_order, ""),
        describe_order,
    ),
    Observation("page_most", "", _learn_page_most, str),
    Observation(
        "clock", "service's time", _learn_clock, lambda known: known.describe(f"from {_CLOCKS.get(known.value, '')}")
    ),
    Observation(
        "offset",
        "service's clock",
        _learn_offset,
        lambda known: f"{_apart(known.seconds)} the local clock" if known else "",
    ),
    Observation("skew", "records' clock", _learn_skew, _describe_skew),
)
"""In the order in which the operator reads them; all learn from what was known before the page."""
