"""The unit of a listing's timestamps: the coarsest in which all of them are whole.

Records imported long ago may be dated in another unit than those that change now, and polls are about now. So any
timestamp counts until there were enough of the last hour; afterwards only those do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Final

from dockbell.core.moment import to_micros
from dockbell.core.reading.page_sample import MICROS, RECORDS_LEAST, PageView
from dockbell.core.reading.trait import Trait

PLAUSIBLE_MICROS: Final = 86_400_000_000
"""A record dated a day or more ahead is planned; its date says nothing of a clock."""
_RECENT_MICROS: Final = 3_600_000_000
_STRIDE: Final = 16


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
