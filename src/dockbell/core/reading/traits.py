"""What the pages of a listing have in common: traits, and how the unit of timestamps and the order are learned."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, Final, NamedTuple

from dockbell.core.moment import to_micros
from dockbell.core.reading.page_sample import MICROS, RECORDS_LEAST, Head, PageView

TURNS_MOST: Final = 3
"""A trait that has turned more often than this varies."""
MIXED: Final = "mixed"
"""The value of a trait in which the records of one page differ."""
NO_ORDER: Final = "none"
PLAUSIBLE_MICROS: Final = 86_400_000_000
"""A record dated a day or more ahead is planned; its date says nothing of a clock."""

_RECENT_MICROS: Final = 3_600_000_000
_STRIDE: Final = 16
_WORDS: Final = {
    "updated": "updated_at, ascending",
    "-updated": "updated_at, descending",
    "key": "the key, ascending",
    "-key": "the key, descending",
    "number": "the key's number, ascending",
    "-number": "the key's number, descending",
    "created": "created_at, ascending",
    "-created": "created_at, descending",
}


class Trait(NamedTuple):
    """What pages have in common in one respect."""

    value: str = ""  # what it is; empty while unknown
    turns: int = 0  # how often it has become another

    @property
    def varies(self) -> bool:
        """Whether it is not one thing, so that no page can contradict it."""
        return self.turns > TURNS_MOST or self.value == MIXED

    def learn(self, seen: str, drift: str, *, teaches: bool = True) -> tuple[Trait, str]:
        """Return the trait after a page, long enough if it ``teaches``, that shows ``seen``; and its drift."""
        if not seen or seen == self.value or self.varies:
            return self, ""
        if not self.value:
            return (Trait(seen, self.turns) if teaches else self), ""
        return Trait(seen, self.turns + 1), report_turn(drift, self.turns + 1)

    def describe(self, words: str) -> str:
        """Return what to show the operator, where ``words`` describes the value; empty while that is unknown."""
        if not self.value:
            return ""
        return f"varies, last {words}" if self.turns > TURNS_MOST else words


def report_turn(drift: str, turns: int) -> str:
    return f"{drift}; it keeps changing, and dockbell stops reporting it" if turns > TURNS_MOST else drift


def agree(first: str, last: str) -> str:
    """Return what both ends of a page show; what one shows where the other shows nothing."""
    return first if first == last or not last else last if not first else MIXED


# Records imported long ago may be dated in another unit than those that change now, and polls are about now. So any
# timestamp counts until there were enough of the last hour; afterwards only those do.


def learn_fresh(fresh: bool, unit: Trait, view: PageView) -> bool:
    """Return whether there were enough timestamps of the last hour, this page included."""
    if fresh or unit.varies or view.newest < _since(view):
        return fresh
    return _are_enough(_recent(view))


def learn_unit(known: Trait, view: PageView, *, fresh: bool) -> tuple[Trait, str]:
    """Return the unit after a page, and the drift where that shows another; ``fresh`` as it was before the page."""
    stamps = view.stamps
    if known.varies or not stamps:
        return known, ""
    if (fresh or view.newest < _since(view)) and _unit_of(stamps[::_STRIDE]) == known.value:
        return known, ""  # a few stand for all: a service writes them one way
    recent = _recent(view)
    unit, are_enough = _unit_of(recent) if recent else known.value, _are_enough(recent)
    if fresh:
        return _turn(known, unit) if are_enough or _is_finer(unit, known.value) else (known, "")
    if are_enough:
        return (known if unit == known.value else Trait(unit)), ""
    whole = _unit_of(stamps)
    several = view.teaches and len(set(stamps)) >= RECORDS_LEAST
    return (Trait(whole) if (known.value or several) and _is_finer(whole, known.value) else known), ""


def _turn(known: Trait, unit: str) -> tuple[Trait, str]:
    turned, drift = known.learn(unit, f"timestamps were whole {known.value} and are now whole {unit}")
    # What varies is as coarse as its coarsest, so that no poll starts too late.
    if turned.varies and _is_finer(unit, known.value):
        turned = turned._replace(value=known.value)
    return turned, drift


def _since(view: PageView) -> int:
    return to_micros(view.page.answered_at) - _RECENT_MICROS


def _recent(view: PageView) -> list[int]:
    since = _since(view)
    return [stamp for stamp in view.stamps if since <= stamp <= since + _RECENT_MICROS + PLAUSIBLE_MICROS]


def _are_enough(stamps: Sequence[int]) -> bool:
    return len(stamps) >= RECORDS_LEAST and len(set(stamps)) >= RECORDS_LEAST


def _unit_of(stamps: Sequence[int]) -> str:
    common = gcd(*stamps)
    return next(name for name, micros in MICROS.items() if common % micros == 0)


def _is_finer(unit: str, other: str) -> bool:
    return other not in MICROS or MICROS[unit] < MICROS[other]


# Several orders may hold for long: keys are given in the order of creation, and what was never edited is dated so too.
# So the trait holds all orders that every page has kept, the likeliest first, separated by blanks.


def learn_order(known: Trait, view: PageView) -> tuple[Trait, str]:
    """Return the orders that all pages have kept, and the drift where none is left.

    The likeliest stands for all; when a page breaks it, those that the page keeps remain. A list without order stays
    so: another look would cost the most and tell the least.
    """
    if known.value == NO_ORDER or known.varies:
        return known, ""
    orders = known.value.split()
    if not orders:
        return (Trait(_orders_of(view), known.turns) if _tells_order(view) else known), ""
    first, *others = orders
    if _keeps(first, view, whole=False):
        return known, ""
    remaining = " ".join(order for order in others if _keeps(order, view, whole=True))
    if remaining:
        return Trait(remaining, known.turns), ""
    subject = "the list of polls" if view.sighting.polled else "the list"
    turned = Trait(_orders_of(view) if _tells_order(view) else "", known.turns + 1)
    drift = f"{subject} was ordered by {_WORDS.get(first, first)}, and no longer is"
    return turned, report_turn(drift, turned.turns)


def describe_order(order: Trait) -> str:
    first = order.value.partition(" ")[0]
    return order.describe("none" if first == NO_ORDER else _WORDS.get(first, first))


def _tells_order(view: PageView) -> bool:
    """Return whether a page has so many different keys and times that no order of theirs holds by chance."""
    sampler = view.sighting.sampler
    return (
        len(set(view.sighting.keys)) >= RECORDS_LEAST
        and (not sampler.is_dated or len(set(view.stamps)) >= RECORDS_LEAST)
        and (not sampler.knows_created or len(set(sampler.created(view.page.records))) >= RECORDS_LEAST)
    )


def _orders_of(view: PageView) -> str:
    sampler = view.sighting.sampler
    there = {"key": True, "number": True, "updated": sampler.is_dated, "created": sampler.knows_created}
    orders = [order for order in _WORDS if there[order.removeprefix("-")]]
    return " ".join(order for order in orders if _keeps(order, view, whole=True)) or NO_ORDER


def _keeps(order: str, view: PageView, *, whole: bool) -> bool:
    """Return whether a page is in an order; ``created`` by its two ends, or else whole.

    It must also begin after the page before it began, not after that page's end: where a list is read by offset, pages
    may shift, and one repeats the end of the other.
    """
    sighting, records = view.sighting, view.page.records
    column, descending = order.removeprefix("-"), order.startswith("-")
    began, begins = (sighting.before, sighting.head) if sighting.before else (Head(None, None), Head(None, None))
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
    return began is None or begins is None or bool(begins <= began if descending else begins >= began)


def _numbered(key: str | None) -> tuple[int, str] | None:
    return None if key is None else (len(key), key)
