"""What a resource's records look like, learned from the first pages where the configuration does not say.

The API's description shows no field names. Identity and timestamp are found by the names that such services use, and
only where they hold on every record of the page; what was learned is stored, shown by ``status`` and checked on every
later page.

While a feed's *read settings* stay the same, two readings of it are comparable. When they change, a difference alone is
no change any more: the feed begins a new baseline. Where the same records are read (:func:`keeps_records`), only their
content begins anew. ``ignore``, ``drop`` and ``unordered`` begin a new baseline only where they leave less out of the
comparison than before: the stored values of what was ignored are old, and each record would be an event. To ignore more
makes no event and hides none, because both sides of a comparison are brought to the canonical form by today's rules.
What is dropped is ignored too, so that a pointer may move from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import product
from typing import Final

import msgspec
from msgspec.structs import replace

from dockbell.core import pointer
from dockbell.core.document import decode
from dockbell.core.key import find_keys
from dockbell.core.model import JSON, RESOURCES
from dockbell.core.moment import parse_moment

_OWN_IDS: Final = ("/id", "/uuid", "/{singular}_id", "/_id")
_IDENTITIES: Final = (*_OWN_IDS, "/key", "/code", "/number")
_MOST_RECORDS: Final = 0.9
"""A key that no record lacks is the better one; where there is none, a few bad records must not hide it."""
_THINGS: Final = ("/sku", "/item_id", "/item_sku", "/product_id", "/item/id", "/item/sku")
_PLACES: Final = ("/warehouse_id", "/warehouse", "/warehouse_code", "/location_id", "/location", "/warehouse/id")
_MODIFIED: Final = (
    "/updated_at",
    "/modified_at",
    "/last_modified_at",
    "/last_modified",
    "/updated",
    "/modified",
    "/updatedAt",
    "/modifiedAt",
    "/lastModified",
    "/last_updated",
    "/last_updated_at",
    "/date_modified",
)
_MODIFIED_NAMES: Final = tuple(f'"{place[1:]}"'.encode() for place in _MODIFIED)
_TRIED: Final = 20
_CREATED: Final = ("/created_at", "/created", "/createdAt", "/creation_date", "/date_created")


class Shape(msgspec.Struct, frozen=True):
    """Where identity and times stand in the records of one feed, as pointers; None where records have no such time."""

    key: tuple[str, ...]
    updated_at: str | None = None
    created_at: str | None = None


def is_own_id(key: Sequence[str], resource: str) -> bool:
    """Return whether a key is the record's own id, which tells records apart unless something shows otherwise."""
    singular = RESOURCES[resource].singular
    return len(key) == 1 and key[0] in {name.format(singular=singular) for name in _OWN_IDS}


class ShapeUnknown(ValueError):
    """No field, and no pair of fields, identifies the records of a page."""


def learn_shape(
    singular: str, records: Sequence[JSON], *, key: tuple[str, ...] | None = None, updated_at: str | None = None
) -> Shape:
    """Return the shape of the records of a page; raises :class:`ShapeUnknown` where nothing identifies every record."""
    return Shape(
        key=key or _find_key(singular, records),
        updated_at=updated_at or _find_time(_MODIFIED, records),
        created_at=_find_time(_CREATED, records),
    )


def learn_times(shape: Shape, records: Sequence[bytes]) -> Shape:
    """Return the shape of undated records with the times that a later page shows; the same where it shows none.

    The first page may hold records whose timestamps are null, dates alone, or unreadable. Where no record has such a
    member, none is decoded; where the first ones that have it state no time, only those are.
    """
    documents: list[JSON] = []
    for raw in records:
        if any(name in raw for name in _MODIFIED_NAMES):
            with suppress(ValueError):
                documents.append(decode(raw))
        if len(documents) == _TRIED and _find_time(_MODIFIED, documents) is None:
            return shape
    updated_at = _find_time(_MODIFIED, documents)
    if updated_at is None:
        return shape
    return replace(shape, updated_at=updated_at, created_at=shape.created_at or _find_time(_CREATED, documents))


def find_dates(records: Sequence[JSON], *, updated_at: str | None = None) -> list[datetime]:
    place = updated_at or _find_time(_MODIFIED, records) or _find_time(_CREATED, records)
    if place is None:
        return []
    tokens = pointer.parse(place)
    return [date for record in records if (date := parse_moment(pointer.resolve(record, tokens))) is not None]


def _find_key(singular: str, records: Sequence[JSON]) -> tuple[str, ...]:
    singles: Iterable[tuple[str, ...]] = ((name.format(singular=singular),) for name in _IDENTITIES)
    candidates = (*singles, *product(_THINGS, _PLACES))
    for least in (1.0, _MOST_RECORDS):
        for candidate in candidates:
            if _identifies(candidate, records, least):
                return candidate
    fields = sorted(records[0]) if records and isinstance(records[0], dict) else []
    raise ShapeUnknown(f"no field identifies the records, got fields {', '.join(fields) or 'none'}")


def _identifies(candidate: tuple[str, ...], records: Sequence[JSON], least: float) -> bool:
    tokens = [pointer.parse(part) for part in candidate]
    keys = [key.text for _, key in find_keys(records, tokens)]
    return 0 < len(keys) == len(set(keys)) and len(keys) >= len(records) * least


def _find_time(candidates: Iterable[str], records: Sequence[JSON]) -> str | None:
    for candidate in candidates:
        tokens = pointer.parse(candidate)
        values = [
            value for record in records if (value := pointer.resolve(record, tokens)) not in (None, pointer.MISSING)
        ]
        if values and all(parse_moment(value) is not None for value in values):
            return candidate
    return None


_IGNORED: Final = ("ignore", "drop")
"""The parts that are left out of the comparison."""
_LENIENT: Final = frozenset({*_IGNORED, "unordered"})
"""The parts that may grow without a new baseline."""
_CONTENT: Final = _LENIENT | {"expand", "detail"}
"""The parts that decide only on the content of records, or on what is compared of it."""
_SHAPING: Final = frozenset({"base_url", "key", "updated_at"})
"""The parts that decide what identifies and dates the records."""


def describe_read_settings(
    *,
    base_url: str,
    key: Sequence[str] | None,
    updated_at: str | None,
    query: Mapping[str, JSON],
    expand: Sequence[str],
    detail: Sequence[str],
    ignore: Sequence[str],
    unordered: Sequence[str],
    drop: Sequence[str],
) -> dict[str, JSON]:
    """Return the settings by which a feed is read; ``key`` and ``updated_at`` are None while unknown."""
    return {
        "base_url": base_url,
        "key": None if key is None else list(key),
        "updated_at": updated_at,
        "query": {name: query[name] for name in sorted(query)},
        "expand": sorted(expand),
        "detail": sorted(detail),
        "ignore": sorted(ignore),
        "unordered": sorted(unordered),
        "drop": sorted(drop),
    }


def find_differences(before: Mapping[str, JSON] | None, after: Mapping[str, JSON]) -> list[str]:
    """Return the parts of the configuration by which two settings differ; unknown parts are no difference."""
    if before is None:
        return []
    ignored = [place for part in _IGNORED for place in after.get(part) or ()]
    return [
        part
        for part, value in after.items()
        if _differs(part, before.get(part), value if value is None or part not in _IGNORED else ignored)
    ]


def keeps_records(parts: Iterable[str]) -> bool:
    """Return whether the same records are read as before when these parts are others: only their content differs."""
    return _CONTENT.issuperset(parts)


def keeps_shape(parts: Iterable[str]) -> bool:
    """Return whether records are identified and dated as before when these parts are others."""
    return _SHAPING.isdisjoint(parts)


def _differs(part: str, before: JSON, after: JSON) -> bool:
    if before is None or after is None:
        return False
    return not set(before) <= set(after) if part in _LENIENT else bool(before != after)
