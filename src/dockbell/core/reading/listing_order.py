"""The order of a listing, learned from its pages.

Several orders may hold for long: keys are given in the order of creation, and what was never edited is dated so too.
So the trait holds all orders that every page has kept, the likeliest first, separated by blanks.
"""

from __future__ import annotations

from typing import Any, Final

from dockbell.core.reading.page_sample import RECORDS_LEAST, Head, PageView
from dockbell.core.reading.trait import Trait, report_turn

NO_ORDER: Final = "none"
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
_NO_HEAD: Final = Head(None, None)


def learn_order(known: Trait, view: PageView) -> tuple[Trait, str]:
    """Return the orders that all pages have kept, and the drift where none is left.

    The likeliest stands for all; when a page breaks it, those that the page keeps remain. A list without order stays
    so: another look would cost the most and tell the least.
    """
    if known.value == NO_ORDER or known.varies:
        return known, ""
    if not known.value:
        return (Trait(_orders_of(view), known.turns) if _tells_order(view) else known), ""
    first, *others = known.value.split()
    if _keeps(first, view, whole=False):
        return known, ""
    remaining = " ".join(order for order in others if _keeps(order, view, whole=True))
    if remaining:
        return Trait(remaining, known.turns), ""
    subject = "the list of polls" if view.sighting.polled else "the list"
    turned = Trait(_orders_of(view) if _tells_order(view) else "", known.turns + 1)
    drift = f"{subject} was in the order of {_WORDS.get(first, first)}, and is not any more"
    return turned, report_turn(drift, turned.turns)


def describe_order(order: Trait) -> str:
    """Return the likeliest order in words."""
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
    there = (
        {"key", "number"}
        | ({"updated"} if sampler.is_dated else set())
        | ({"created"} if sampler.knows_created else set())
    )
    orders = [order for order in _WORDS if order.removeprefix("-") in there]
    return " ".join(order for order in orders if _keeps(order, view, whole=True)) or NO_ORDER


def _keeps(order: str, view: PageView, *, whole: bool) -> bool:
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
