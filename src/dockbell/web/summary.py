"""The summary of an event, for lists: its kind, its time, and the first of its changed paths."""

from __future__ import annotations

from typing import Final

import msgspec

from dockbell.core.model import JSON, Event

_CHANGED_MOST: Final = 5


class _Data(msgspec.Struct):
    changed: list[str] | None = None


class _Event(msgspec.Struct):
    time: str
    data: _Data


_DECODER: Final = msgspec.json.Decoder(_Event)


def summarise(place: int, event: Event) -> dict[str, JSON]:
    """Return the summary of an event; ``place`` numbers the events of all feeds."""
    told = _DECODER.decode(event.body)
    changed = told.data.changed or []
    return {
        "place": place,
        "feed": str(event.feed),
        "source": event.feed.source,
        "resource": event.feed.resource,
        "sequence": event.sequence,
        "key": event.key,
        "type": event.type,
        "change": event.change,
        "revision": event.revision,
        "at": told.time,
        "changed": changed[:_CHANGED_MOST],
        "more": max(0, len(changed) - _CHANGED_MOST),
    }
