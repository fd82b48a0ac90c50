"""The read settings of a feed: while they stay the same, two readings of it are comparable.

When they change, the stored records were read differently, and a difference alone is no change any more: the feed
begins a new baseline. Where the same records are read (:func:`keeps_records`), it is still known which records exist
and when they were modified; only their content begins anew.

``ignore``, ``drop`` and ``unordered`` begin a new baseline only where they leave less out of the comparison than
before: the stored values of what was ignored are old, and each record would be an event. To ignore more makes no event
and hides none, because both sides of a comparison are brought to the canonical form by today's rules. What is dropped
is ignored too, so that a pointer may move from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dockbell.core.model import JSON

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
